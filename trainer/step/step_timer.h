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
  // `max_passes` is the maximum number of micro-batches of a step. If passes are `contiguous`, each
  // one ends when the next begins; otherwise they may wait for other pipeline stages in between.
  // The device must outlive the timer.
  StepTimer(Device& device, int64_t max_passes, bool contiguous);

  // Queue the measurement of a step: the begin of all passes, the begin and the end of the forward
  // and of the backward pass of each micro-batch, in any order, then the end of all passes, of the
  // gradient sums, of the sums over pipeline stages and of the update.
  enum Mark { kForwardBegins, kForwardEnds, kBackwardBegins, kBackwardEnds, kMarks };
  void record(Mark mark, int64_t pass, Stream& stream) { stream.record(pass_event(mark, pass)); }
  enum Point { kPassesBegin, kPassesEnd, kSumsEnd, kStageSumsEnd, kUpdateEnds, kPoints };
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

  // Returns the event that ends the gradient sums. Without pipeline stages, it begins the update.
  Event& sums_end() const { return *events_[contiguous_ ? kStageSumsEnd : kSumsEnd]; }
  TimeSpan between(Event& start, Event& from, Event& to) const;
  // Adds the times between passes to `timeline`.
  void add_idle(StepTimeline& timeline, Event& start) const;

  // Return the events that end the passes of a micro-batch, in a step with `passes` of them.
  Event& forward_end(int64_t pass) const;
  Event& backward_end(int64_t pass, int64_t passes) const;

  Device& device_;
  const bool contiguous_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace trireme::train
