// Ends a start that does not come to an end: a rank that dies or hangs before MPI has joined the
// ranks leaves the others waiting where nothing of theirs can watch.
#pragma once

#include <memory>

#include "comm/world.h"

namespace trireme {

// From before MPI is initialised until the watchdog runs. After `seconds` it prints which ranks
// have arrived and which are missing, as far as can be seen from this host (ranks leave a note in
// shared memory as they come; of other hosts only the number is known), and ends the process with
// exit code
// 1. Notes of dead runs are removed, its own when it goes.
class InitGuard {
 public:
  InitGuard(const Launcher& launcher, double seconds);
  ~InitGuard();
  InitGuard(const InitGuard&) = delete;
  InitGuard& operator=(const InitGuard&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
