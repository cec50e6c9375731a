// Connects this process with the other ranks that its launcher started.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace trireme::comm {

// The program that started this process, according to the environment variables that it sets.
struct Launcher {
  std::string name;       // "mpirun", "srun", "mpiexec" (of another MPI) or "none"
  int ranks = 1;          // number of ranks started
  bool pmix = false;      // PMIx, which MPI needs to connect the ranks, is available
  bool one_host = false;  // all ranks are on one host
};
Launcher detect_launcher();

// The communicator and the watchdog of a run. If a launcher started several ranks, the constructor
// initializes MPI (MPI_THREAD_MULTIPLE); otherwise MPI is not used and the world is one local rank.
//
// A program must state how it ends, since other ranks may be waiting for one that failed:
//   try { World world; ...; world.finalize(); }
// - on success, every rank calls finalize();
// - on AgreedError (comm/control.h), which all ranks throw, rank 0 prints the message and every
//   rank calls finalize();
// - on any other failure, the rank calls watchdog().fail(), which ends all ranks.
// Destroying a World without finalize() does not wait for other ranks, which treat it as a failure.
class World {
 public:
  // `init_timeout` limits how long the ranks may take to find each other, in seconds; 0 disables
  // it. When it has passed, `report_late` is called, if given, and the process ends, see InitGuard.
  // Throws ConfigError if the launcher started several ranks that cannot see each other; the
  // message says how to start them.
  explicit World(double init_timeout = 300,
                 std::function<void(const std::string& message)> report_late = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& communicator() { return *communicator_; }
  Watchdog& watchdog() { return *watchdog_; }
  const Launcher& launcher() const { return launcher_; }

  // Leaves the run cleanly. All ranks must call it, after destroying all objects created from the
  // communicator. Blocks until they have; they are watched until then.
  void finalize();

 private:
  struct Session;
  Launcher launcher_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Watchdog> watchdog_;
};

// Returns the version of the linked MPI library, for messages: "Open MPI v4.1.4, ...".
std::string mpi_version();

}  // namespace trireme::comm
