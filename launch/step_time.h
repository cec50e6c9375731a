// How long steps take where several may be in flight.
#pragma once

namespace trireme::cli {

// The mean of `steps` steps, by the clock `now`, which returns seconds. `run` queues a step and may
// return while it still runs; `finish` blocks until all that were queued are done.
template <class Run, class Finish, class Now>
double mean_step_seconds(int steps, Run run, Finish finish, Now now) {
  finish();
  const double start = now();
  for (int i = 0; i < steps; ++i) run();
  finish();
  return (now() - start) / steps;
}

}  // namespace trireme::cli
