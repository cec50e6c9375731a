// Measures the time of steps, of which several may be in flight.
#pragma once

namespace trireme::cli {

// Returns the mean time of `steps` steps in seconds. `run` queues a step and may return before the
// step ends, `finish` blocks until all queued steps have ended, and `now` returns the time in
// seconds.
template <class Run, class Finish, class Now>
double mean_step_seconds(int steps, Run run, Finish finish, Now now) {
  finish();
  const double start = now();
  for (int i = 0; i < steps; ++i) run();
  finish();
  return (now() - start) / steps;
}

}  // namespace trireme::cli
