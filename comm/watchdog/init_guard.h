// Ends a start that does not come to an end: a rank that dies or hangs before MPI has joined the
// ranks leaves the others waiting where nothing of theirs can watch.
#pragma once

#include <memory>

#include "comm/world.h"

namespace trireme::comm {

// How long ranks may take to find one another, in seconds: TRIREME_INIT_TIMEOUT, or 300. 0: for
// ever. Throws ConfigError when that is no such number.
double init_timeout();

// From before MPI is initialized until the watchdog runs. When `seconds` have passed, or a rank of
// this host has died, it prints which ranks have come and which are missing, and ends the process
// with exit code 1. Ranks leave a note in shared memory as they come, so this is known of the ranks
// of this host; of others only the number is. A note goes with its guard; those that a killed run
// left are removed by the next that starts.
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

}  // namespace trireme::comm
