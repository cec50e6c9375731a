#include "trainer/optimizer/training_plan.h"

#include <algorithm>

namespace trireme::train {
namespace {

int64_t steps_of(const TrainConfig& train, const Epochs& epochs, int64_t step,
                 SamplePosition from) {
  if (!train.has_epochs()) return train.max_steps();
  const int64_t all_epochs = step + epochs.steps_until(from, train.epochs());
  return train.has_max_steps() ? std::min(all_epochs, train.max_steps()) : all_epochs;
}

// Returns the position at which the schedule ends: the end of the epochs if their number is set,
// even if max_steps ends the run earlier, otherwise max_steps.
SamplePosition schedule_end(const TrainConfig& train, const Epochs& epochs, int64_t step,
                            SamplePosition from) {
  if (train.has_epochs()) return {train.epochs(), 0};
  return epochs.after(from, std::max<int64_t>(0, train.max_steps() - step));
}

}  // namespace

TrainingPlan::TrainingPlan(const RunConfig& run, int64_t samples, int64_t step, SamplePosition from)
    : epochs_(samples, run.batch().global()),
      total_steps_(steps_of(run.train(), epochs_, step, from)),
      schedule_(run.schedule(), epochs_.steps(),
                epochs_.in_steps(schedule_end(run.train(), epochs_, step, from))) {}

}  // namespace trireme::train
