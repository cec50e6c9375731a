// Being told to stop: SIGTERM, SIGINT, SIGUSR1. The handler only sets a flag, which the run looks
// at between steps.
#pragma once

#include <signal.h>

namespace trireme {

// Handles the signals while it lives; then the former handlers are back.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // the first that came, or 0

 private:
  static constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction before_[3];
};

}  // namespace trireme
