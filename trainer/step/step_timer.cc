#include "trainer/step/step_timer.h"

namespace trireme::train {

StepTimer::StepTimer(Device& device, int64_t max_passes, bool contiguous)
    : device_(device), contiguous_(contiguous) {
  for (int64_t i = 0; i < kPoints + kMarks * max_passes; ++i) {
    events_.push_back(device.create_event(EventKind::kTimed));
  }
}

Event& StepTimer::forward_end(int64_t pass) const {
  return pass_event(contiguous_ ? kBackwardBegins : kForwardEnds, pass);
}

Event& StepTimer::backward_end(int64_t pass, int64_t passes) const {
  if (!contiguous_) return pass_event(kBackwardEnds, pass);
  return pass + 1 < passes ? pass_event(kForwardBegins, pass + 1) : *events_[kPassesEnd];
}

StepTimings StepTimer::timings(int64_t passes) const {
  StepTimings timings;
  for (int64_t pass = 0; pass < passes; ++pass) {
    timings.forward += device_.seconds_between(pass_event(kForwardBegins, pass), forward_end(pass));
    timings.backward +=
        device_.seconds_between(pass_event(kBackwardBegins, pass), backward_end(pass, passes));
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
    timeline.forward.push_back(between(pass_event(kForwardBegins, pass), forward_end(pass)));
    timeline.backward.push_back(
        between(pass_event(kBackwardBegins, pass), backward_end(pass, passes)));
  }
  timeline.exposed = between(*events_[kPassesEnd], *events_[kSumsEnd]);
  timeline.update = between(*events_[kSumsEnd], *events_[kUpdateEnds]);
}

}  // namespace trireme::train
