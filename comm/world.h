// Joins this process to the other ranks of its launcher.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace trireme {

// What started this process, as far as its environment tells.
struct Launcher {
  std::string name;  // "mpirun", "srun" or "none"
  int ranks = 1;     // that it says it started
};
Launcher detect_launcher();

// Initialises MPI (thread-multiple) when there is a launcher, and finalises it in the end. With
// no launcher MPI is not touched and the world is one local rank. Throws ConfigError when the launcher
// started several ranks that cannot see each other, saying what to change.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Communicator& communicator() { return *communicator_; }

 private:
  bool mpi_ = false;
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace trireme
