#include "trainer/step/step_timer.h"

#include <algorithm>

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
  timings.exposed = device_.seconds_between(*events_[kPassesEnd], sums_end());
  timings.update = device_.seconds_between(*events_[kStageSumsEnd], *events_[kUpdateEnds]);
  if (contiguous_) return timings;
  timings.idle = device_.seconds_between(*events_[kPassesBegin], *events_[kPassesEnd]) -
                 timings.forward - timings.backward +
                 device_.seconds_between(*events_[kSumsEnd], *events_[kStageSumsEnd]);
  return timings;
}

TimeSpan StepTimer::between(Event& start, Event& from, Event& to) const {
  return {device_.seconds_between(start, from), device_.seconds_between(start, to)};
}

void StepTimer::add_to(StepTimeline& timeline, Event& start, int64_t passes) const {
  for (int64_t pass = 0; pass < passes; ++pass) {
    timeline.forward.push_back(between(start, pass_event(kForwardBegins, pass), forward_end(pass)));
    timeline.backward.push_back(
        between(start, pass_event(kBackwardBegins, pass), backward_end(pass, passes)));
  }
  timeline.exposed = between(start, *events_[kPassesEnd], sums_end());
  timeline.update = between(start, *events_[kStageSumsEnd], *events_[kUpdateEnds]);
  if (!contiguous_) add_idle(timeline, start);
}

void StepTimer::add_idle(StepTimeline& timeline, Event& start) const {
  std::vector<TimeSpan> passes = timeline.forward;
  passes.insert(passes.end(), timeline.backward.begin(), timeline.backward.end());
  std::ranges::sort(passes, {}, &TimeSpan::begin);
  double end = device_.seconds_between(start, *events_[kPassesBegin]);
  for (const TimeSpan& pass : passes) {
    if (pass.begin > end) timeline.idle.push_back({end, pass.begin});
    end = pass.end;
  }
  timeline.idle.push_back({end, device_.seconds_between(start, *events_[kPassesEnd])});
  timeline.idle.push_back(between(start, *events_[kSumsEnd], *events_[kStageSumsEnd]));
}

}  // namespace trireme::train
