// Being told to stop: SIGTERM, SIGINT, SIGUSR1. The handler only sets a flag, which the run looks
// at between steps. A deadline ends the process even where it no longer looks.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace trireme::train {

// One at a time in a process, made before MPI is initialized so that no signal is lost.
class StopSignals {
 public:
  // Handles the signals from now on. `grace`: seconds from the first of them to the end of the
  // process, with exit code 75, whatever it is at; 0: however long it takes.
  explicit StopSignals(double grace = 0);
  // From then on the signals are ignored: the process is at its end, and its exit code decided.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // the first that came, or 0
  // Another rank was told to stop, and this one goes with it: here the grace begins too.
  void follow();

  // What the deadline does just before it ends the process, on a thread of its own; empty: it says
  // that all that was there to save is saved. Once this returns the former is not called any more.
  void at_deadline(std::function<void(double grace)> last_words);

 private:
  void keep_deadline(double grace);

  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::function<void(double)> last_words_;
  std::thread timer_;
};

}  // namespace trireme::train
