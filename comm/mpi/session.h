// MPI from start to end, and communicators on it. Headers outside this folder name no MPI type.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"

namespace trireme::comm::mpi {

// Initializes MPI for calls from any thread. The process that destroys it without having called
// finalize() leaves without the goodbye that peers would have to join in; the launcher then ends
// them.
class Session {
 public:
  // With all ranks on one host, MPI need not look for networks, which takes most of its start.
  explicit Session(bool one_host = false);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int ranks() const { return ranks_; }
  // All ranks call it, after all communicators are gone; blocks until they do.
  void finalize();

 private:
  int ranks_ = 1;
};

// Of all ranks that were started together. All call it. A host color groups those of the real host
// further, as though each color were a host of its own: for tests of several hosts on one.
std::unique_ptr<Communicator> create_communicator(std::optional<int> host_color = {});

// What the linked library says it is. Needs no session.
std::string library_version();

}  // namespace trireme::comm::mpi
