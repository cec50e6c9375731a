// The learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"

namespace trireme::train {

class Schedule {
 public:
  // `total_steps` is the step at which cosine, polynomial and one_cycle end.
  Schedule(const ScheduleConfig& config, int64_t steps_per_epoch, double total_steps);

  // Returns the learning rate of the update after `step` updates with the current batch size (see
  // Epochs::in_steps).
  double at(double step) const;
  int64_t warmup_steps() const { return warmup_steps_; }

 private:
  double shape(double step) const;  // the learning rate without the factor of the warmup

  ScheduleConfig config_;
  double total_steps_;
  int64_t warmup_steps_ = 0;
  int64_t step_length_ = 0;
  std::vector<int64_t> milestones_;
};

}  // namespace trireme::train
