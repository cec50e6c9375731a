// Joins this process to the other ranks of its launcher.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/watchdog.h"

namespace trireme::comm {

// What started this process, as far as its environment tells.
struct Launcher {
  std::string name;       // "mpirun", "srun", "mpiexec" (of another MPI) or "none"
  int ranks = 1;          // that it says it started
  bool pmix = false;      // it gives its ranks what MPI needs to find each other
  bool one_host = false;  // it says that they are all on one
};
Launcher detect_launcher();

// With several ranks started by a launcher: initializes MPI (thread-multiple). Otherwise MPI is not
// touched and the world is one local rank. Throws ConfigError when the launcher started several
// ranks that cannot see each other, saying what to change.
//
// From then on the ranks are watched. The end is spelled out, as peers may wait for a rank that
// failed:
//   try { World world; ...; world.finalize(); }
// - success: every rank calls finalize();
// - AgreedError (comm/control.h): every rank has it; rank 0 says so, every rank calls finalize();
// - any other failure: watchdog().fail(), which ends all ranks.
// A World destroyed without finalize() waits for no one; its end is a failure to the other ranks.
class World {
 public:
  // `init_timeout`: how long the ranks may take to find one another, in seconds; 0: for ever.
  explicit World(double init_timeout = 300);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& communicator() { return *communicator_; }
  Watchdog& watchdog() { return *watchdog_; }
  const Launcher& launcher() const { return launcher_; }

  // All ranks call it, after everything made from the communicator is gone. Blocks until they do;
  // they are watched until then.
  void finalize();

 private:
  struct Session;
  Launcher launcher_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Watchdog> watchdog_;
};

// The linked MPI library, for people: "Open MPI v4.1.4, ...".
std::string mpi_version();

}  // namespace trireme::comm
