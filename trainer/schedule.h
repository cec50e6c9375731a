// The learning rate: a pure function of the step, so that a resumed run needs no state for it.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config.h"

namespace trireme {

class Schedule {
 public:
  // total_steps: length of the run, at which cosine, polynomial and one_cycle end.
  Schedule(const ScheduleConfig& config, int64_t steps_per_epoch, int64_t total_steps);

  // For the update that follows `step` others.
  double at(int64_t step) const;
  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  double shape(int64_t step) const;

  ScheduleConfig config_;
  int64_t total_steps_;
  int64_t warmup_steps_ = 0;
  int64_t step_length_ = 0;
  std::vector<int64_t> milestones_;
};

}  // namespace trireme
