// Measures the phases of a step with device events.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/time_span.h"
#include "trainer/step/step_result.h"
#include "trainer/step/timeline.h"

namespace trireme::train {

class StepTimer {
 public:
  // `max_passes` is the maximum number of passes of a step. The device must outlive the timer.
  StepTimer(Device& device, int64_t max_passes);

  // Queue the measurement of a step: its start, the begin and the end of the forward and of the
  // backward pass of each micro-batch, in any order, then the end of all passes, of the gradient sums
  // and of the update.
  enum Mark { kForwardBegins, kForwardEnds, kBackwardBegins, kBackwardEnds, kMarks };
  void record(Mark mark, int64_t pass, Stream& stream) { stream.record(pass_event(mark, pass)); }
  enum Point { kStart, kPassesEnd, kSumsEnd, kUpdateEnds, kPoints };
  void record(Point point, Stream& stream) { stream.record(*events_[static_cast<size_t>(point)]); }

  // Returns the timings of the last recorded step, which had `passes` passes and must be done. Does
  // not set `communication`.
  StepTimings timings(int64_t passes) const;
  // Sets the phases of such a step in `timeline`, in seconds since `start`.
  void add_to(StepTimeline& timeline, Event& start, int64_t passes) const;

 private:
  Event& pass_event(Mark mark, int64_t pass) const {
    return *events_[static_cast<size_t>(kPoints + kMarks * pass + mark)];
  }

  Device& device_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace trireme::train
