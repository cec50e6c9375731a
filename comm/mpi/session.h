// Initialization and finalization of MPI, and creation of communicators. This header names no MPI
// type, so that only this folder depends on MPI's headers.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm::mpi {

// Initializes MPI for calls from any thread. Destroying it without finalize() leaves MPI
// initialized, so that the launcher ends the other ranks when the process ends.
class Session {
 public:
  // `one_host` declares that all ranks are on one host: MPI then skips the search for networks,
  // which takes most of its startup time. Throws ConfigError if the MPI library does not support
  // MPI_THREAD_MULTIPLE.
  explicit Session(bool one_host = false);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int ranks() const { return ranks_; }
  // Blocks until all ranks have called it. All communicators must have been destroyed.
  void finalize();

 private:
  int ranks_ = 1;
};

// Returns a communicator for all ranks of the launcher, which must call it together. `host_color`
// is for tests: ranks of this host with different colors are treated as being on different hosts.
std::unique_ptr<Communicator> create_communicator(std::optional<int> host_color = {});

// Returns the version of the linked MPI library. Does not need a session.
std::string library_version();

}  // namespace trireme::comm::mpi
