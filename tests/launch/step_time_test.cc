#include "launch/step_time.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// A device that takes a second a step, and `ahead` steps before the host waits for the first.
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

// A host that times single calls takes a step that is only queued for a short one.
TEST(StepTime, IsThatOfTheDeviceHoweverManyStepsAreInFlight) {
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
