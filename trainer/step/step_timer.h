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

  // Queue the measurement of a step. Call restart(), then record() at the beginning and in the
  // middle of each pass, at the end of the last pass, after the gradient sums and after the update.
  void restart() { next_ = 0; }
  void record(Stream& stream) { stream.record(*events_[next_++]); }

  // Returns the timings of the last recorded step, which had `passes` passes and must be done. Does
  // not set `communication`.
  StepTimings timings(int64_t passes) const;
  // Sets the phases of such a step in `timeline`, in seconds since `start`.
  void add_to(StepTimeline& timeline, Event& start, int64_t passes) const;

 private:
  Event& event(int64_t index) const { return *events_[static_cast<size_t>(index)]; }

  Device& device_;
  std::vector<std::unique_ptr<Event>> events_;
  size_t next_ = 0;
};

}  // namespace trireme::train
