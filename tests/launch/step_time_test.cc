#include "launch/step_time.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// A device that takes one second per step. The host may queue `ahead` steps before it has to wait.
struct Device {
  int ahead;
  int queued = 0;
  int done = 0;
  double time = 0;

  void finish_until(int steps) {
    if (steps <= done) return;
    time += steps - done;
    done = steps;
  }
  void run() { finish_until(++queued - ahead); }
};

// Timing single calls would give too little, since a call may only queue the step.
TEST(StepTime, DoesNotDependOnTheNumberOfStepsInFlight) {
  for (int ahead : {0, 1, 2}) {
    Device device{.ahead = ahead};
    for (int i = 0; i < 5; ++i) device.run();
    EXPECT_EQ(mean_step_seconds(
                  3, [&] { device.run(); }, [&] { device.finish_until(device.queued); },
                  [&] { return device.time; }),
              1)
        << ahead << " steps ahead";
  }
}

}  // namespace
}  // namespace trireme::cli
