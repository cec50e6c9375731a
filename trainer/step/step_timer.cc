#include "trainer/step/step_timer.h"

namespace trireme::train {

StepTimer::StepTimer(Device& device, int64_t max_passes) : device_(device) {
  for (int64_t i = 0; i < kPoints + kMarks * max_passes; ++i) {
    events_.push_back(device.create_event(EventKind::kTimed));
  }
}

StepTimings StepTimer::timings(int64_t passes) const {
  StepTimings timings;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const auto between = [&](Mark from, Mark to) {
      return device_.seconds_between(pass_event(from, pass), pass_event(to, pass));
    };
    timings.forward += between(kForwardBegins, kForwardEnds);
    timings.backward += between(kBackwardBegins, kBackwardEnds);
  }
  timings.exposed = device_.seconds_between(*events_[kPassesEnd], *events_[kSumsEnd]);
  timings.update = device_.seconds_between(*events_[kSumsEnd], *events_[kUpdateEnds]);
  timings.idle = device_.seconds_between(*events_[kStart], *events_[kPassesEnd]) - timings.forward -
                 timings.backward;
  return timings;
}

void StepTimer::add_to(StepTimeline& timeline, Event& start, int64_t passes) const {
  const auto between = [&](Event& from, Event& to) {
    return TimeSpan{device_.seconds_between(start, from), device_.seconds_between(start, to)};
  };
  for (int64_t pass = 0; pass < passes; ++pass) {
    timeline.forward.push_back(
        between(pass_event(kForwardBegins, pass), pass_event(kForwardEnds, pass)));
    timeline.backward.push_back(
        between(pass_event(kBackwardBegins, pass), pass_event(kBackwardEnds, pass)));
  }
  timeline.exposed = between(*events_[kPassesEnd], *events_[kSumsEnd]);
  timeline.update = between(*events_[kSumsEnd], *events_[kUpdateEnds]);
}

}  // namespace trireme::train
