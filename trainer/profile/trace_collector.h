// Makes a rank's part of a trace out of what its steps and its loader tell.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "data/loader.h"
#include "trainer/profile/trace_event.h"
#include "trainer/step/step.h"

namespace trireme::train {

class TraceCollector {
 public:
  using Clock = std::chrono::steady_clock;

  // Of steps that are being profiled (Step::profile). `zero` is where the trace's time begins.
  TraceCollector(const Step& step, const comm::Placement& placement, const Device& device,
                 std::span<const std::string> bucket_names, Clock::time_point zero);

  // The batch of a step was asked for and came. Steps in their order, here and below.
  void fetched(int64_t step, Clock::time_point asked, Clock::time_point came);
  void done(int64_t step, const StepTimeline& timeline);
  void read(std::span<const data::ReadRows> all);

  const RankTrace& trace() const { return trace_; }

 private:
  struct Fetch {
    int64_t step;
    int64_t asked, came;
  };
  void name_layers(const Step& step);
  void name_buckets(const Step& step, std::span<const std::string> names);
  int64_t time(Clock::time_point at) const;
  void add(TrackId track, int subject, int64_t step, int64_t begin, int64_t end);
  void add_phases(int64_t step, const StepTimeline& timeline, const Fetch& fetch);

  RankTrace trace_;
  Clock::time_point zero_;
  int64_t device_zero_;  // StepTimeline::began is counted from it
  bool copies_;          // batches are copied to the device
  int stretches_ = 0;    // subjects
  int first_bucket_ = 0;
  int loaders_ = 0;            // that have a track
  std::deque<Fetch> fetches_;  // of steps that are not done
  int64_t previous_end_ = 0;   // of a step
};

}  // namespace trireme::train
