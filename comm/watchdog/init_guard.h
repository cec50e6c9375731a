// A timeout for startup. If a rank dies or hangs before MPI has connected the ranks, the others
// wait inside MPI_Init, and the watchdog does not run yet.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/world.h"

namespace trireme::comm {

// The environment variable that sets how long ranks may take to find each other.
inline constexpr const char* kInitTimeoutVariable = "TRIREME_INIT_TIMEOUT";
// Returns how long ranks may take to find each other, in seconds: the value of
// TRIREME_INIT_TIMEOUT, or 300 if it is not set. 0 disables the timeout. Throws ConfigError if the
// value is not valid.
double init_timeout();

// Guards the time from before MPI_Init until the watchdog runs. When `seconds` have passed, or a
// rank of this host has died, prints which ranks have started and which are missing, and ends the
// process with exit code 1; if `report` is given, it is called instead of printing the message, on
// another thread. The state of ranks is known on their own host only (see
// startup_markers.h). The destructor removes this rank's marker; markers of runs that were killed
// are removed by the next run.
class InitGuard {
 public:
  InitGuard(const Launcher& launcher, double seconds,
            std::function<void(const std::string& message)> report = {});
  ~InitGuard();
  InitGuard(const InitGuard&) = delete;
  InitGuard& operator=(const InitGuard&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::comm
