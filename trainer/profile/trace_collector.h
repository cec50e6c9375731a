// Builds the trace of a rank from the timelines of its steps and the journal of its loader.
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

  // `step` must be profiling (Step::profile). `zero` is the time at which the trace begins.
  TraceCollector(const Step& step, const comm::Placement& placement, const Device& device,
                 std::span<const std::string> bucket_names, Clock::time_point zero);

  // Add the request and arrival of a step's batch, and the timeline of a step that is done. Both
  // must be called for each step in order.
  void fetched(int64_t step, Clock::time_point asked, Clock::time_point arrived);
  void done(int64_t step, const StepTimeline& timeline);
  // Adds the rows that the loader's threads have read.
  void read(std::span<const data::ReadRows> all);

  const RankTrace& trace() const { return trace_; }

 private:
  struct Fetch {
    int64_t step;
    int64_t asked, arrived;
  };
  void name_layers(const Step& step);
  void set_bucket_names(const Step& step, std::span<const std::string> names);
  int64_t time(Clock::time_point at) const;
  void add(TrackId track, int descriptor, int64_t step, int64_t begin, int64_t end);
  void add_phases(int64_t step, const StepTimeline& timeline, const Fetch& fetch);

  RankTrace trace_;
  Clock::time_point zero_;
  int64_t device_zero_;        // the time that StepTimeline::start is relative to
  bool copies_;                // whether batches are copied to the device
  int layer_ranges_ = 0;       // number of their descriptors
  int first_bucket_ = 0;       // descriptor of bucket 0
  int loaders_ = 0;            // number of loader threads that have a track
  std::deque<Fetch> fetches_;  // fetches for steps that are not done yet
  int64_t previous_end_ = 0;   // end of the previous step
};

}  // namespace trireme::train
