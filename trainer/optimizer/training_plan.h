// The number of steps of a run and the learning rate of each. Both depend only on the configuration
// and the position in the training samples, so a resumed run needs no saved state for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/optimizer/epochs.h"
#include "trainer/optimizer/schedule.h"

namespace trireme::train {

// Returns a warning for each way in which the learning rates of a run are probably not intended: a
// warmup that is not over before the end, a base rate that is never reached, a rate above it. Only
// what does not depend on the number of training samples is checked if `samples` is 0.
std::vector<std::string> schedule_warnings(const RunConfig& run, int64_t samples);

class TrainingPlan {
 public:
  // Plans a run with epochs of `samples` samples that has done `step` updates and is at the
  // position `from`. It continues with the configured batch size, which may differ from that of
  // earlier steps.
  TrainingPlan(const RunConfig& run, int64_t samples, int64_t step, SamplePosition from);

  int64_t steps_per_epoch() const { return epochs_.steps(); }
  // Returns the number of updates at the end of the run, including those before `step`.
  int64_t total_steps() const { return total_steps_; }
  // Returns the learning rate of the update that begins at this position. It is the same as in a
  // run that has used this configuration and batch size from the first sample on.
  double learning_rate(SamplePosition at) const { return schedule_.at(epochs_.in_steps(at)); }

 private:
  Epochs epochs_;
  int64_t total_steps_;
  Schedule schedule_;
};

}  // namespace trireme::train
