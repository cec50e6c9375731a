// When the phases of a step happen on its device.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/time_span.h"
#include "trainer/step/step_result.h"
#include "trainer/step/timeline.h"

namespace trireme::train {

class StepMarks {
 public:
  // For steps of up to so many passes. The device outlives it.
  StepMarks(Device& device, int64_t passes);

  // While a step is queued: restart(), then mark() at the beginning and in the middle of each pass
  // and at the ends of the last pass, of the sums and of the update.
  void restart() { next_ = 0; }
  void mark(Stream& stream) { stream.record(*events_[next_++]); }

  // Of the step marked last, of so many passes, once it is done. Communication is left out.
  StepTimings timings(int64_t passes) const;
  // Fills in the phases of such a step, in seconds after `first`.
  void add_to(StepTimeline& timeline, Event& first, int64_t passes) const;

 private:
  Event& event(int64_t index) const { return *events_[static_cast<size_t>(index)]; }

  Device& device_;
  std::vector<std::unique_ptr<Event>> events_;
  size_t next_ = 0;
};

}  // namespace trireme::train
