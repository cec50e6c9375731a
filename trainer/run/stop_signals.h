// Handles requests to stop: SIGTERM, SIGINT, SIGHUP (the terminal was closed) and SIGUSR1. The
// handler only sets a flag, which the run checks between steps. A deadline ends the process even if
// the run no longer checks.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.h"

namespace trireme::train {

// At most one may exist in a process. Create it before MPI is initialized, so that no signal is
// lost.
class StopSignals {
 public:
  // Starts handling the signals, except SIGHUP if it is ignored (nohup). `grace` is the number of
  // seconds after the first of them at which the process exits, no matter what it is doing. 0
  // disables the deadline.
  explicit StopSignals(double grace = 0);
  // Ignores the signals from then on, since the process is about to exit and its exit code is
  // decided.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // the first signal that was received, or 0
  // Requests a stop because another rank has received a signal. Starts the grace period of this
  // rank, too.
  void request_by_peer();

  // Returns the exit code of a process that is still running `grace` seconds after a request to
  // stop.
  using Deadline = std::function<ExitCode(double grace)>;
  // Sets the function that is called, on a separate thread, at the deadline, just before the
  // process exits. Once this returns, the previous function is no longer called.
  void on_deadline(Deadline callback);

 private:
  void enforce_deadline(double grace);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  Deadline deadline_callback_;
  std::thread timer_;
};

}  // namespace trireme::train
