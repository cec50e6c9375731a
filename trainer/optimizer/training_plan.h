// The course of a run from where it starts or resumes to its end: how many steps are left, and the
// learning rate of each. A pure function of the configuration and of the samples seen, so that a
// resumed run needs no state for it.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"
#include "trainer/optimizer/epochs.h"
#include "trainer/optimizer/schedule.h"

namespace trireme::train {

class TrainingPlan {
 public:
  // Of a run that has done `step` updates, has come to `from`, and goes on with the batch that it
  // is configured with. `samples`: of an epoch.
  TrainingPlan(const RunConfig& run, int64_t samples, int64_t step, SamplePosition from);

  int64_t steps_per_epoch() const { return epochs_.steps(); }
  // Updates done when the run ends, those before `step` included.
  int64_t total_steps() const { return total_steps_; }
  // Of the update that begins there: that of a run which has had this configuration, and this
  // batch, from its first sample on.
  double learning_rate(SamplePosition at) const { return schedule_.at(epochs_.in_steps(at)); }

 private:
  Epochs epochs_;
  int64_t total_steps_;
  Schedule schedule_;
};

}  // namespace trireme::train
