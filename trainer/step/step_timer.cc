#include "trainer/step/step_timer.h"

namespace trireme::train {

StepTimer::StepTimer(Device& device, int64_t max_passes) : device_(device) {
  for (int64_t i = 0; i < 2 * max_passes + 3; ++i) {
    events_.push_back(device.create_event(EventKind::kTimed));
  }
}

StepTimings StepTimer::timings(int64_t passes) const {
  const auto between = [&](int64_t from, int64_t to) {
    return device_.seconds_between(event(from), event(to));
  };
  StepTimings timings;
  for (int64_t pass = 0; pass < passes; ++pass) {
    timings.forward += between(2 * pass, 2 * pass + 1);
    timings.backward += between(2 * pass + 1, 2 * pass + 2);
  }
  const int64_t end = 2 * passes;
  timings.exposed = between(end, end + 1);
  timings.update = between(end + 1, end + 2);
  return timings;
}

void StepTimer::add_to(StepTimeline& timeline, Event& start, int64_t passes) const {
  const auto between = [&](int64_t from, int64_t to) {
    return TimeSpan{device_.seconds_between(start, event(from)),
                    device_.seconds_between(start, event(to))};
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    timeline.forward.push_back(between(2 * pass, 2 * pass + 1));
    timeline.backward.push_back(between(2 * pass + 1, 2 * pass + 2));
  }
  const int64_t end = 2 * passes;
  timeline.exposed = between(end, end + 1);
  timeline.update = between(end + 1, end + 2);
}

}  // namespace trireme::train
