#include "trainer/optimizer/training_plan.h"

#include <fmt/format.h>

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

// The highest of the first `steps` learning rates, of which at most about 100,000 are computed.
double highest_rate(const Schedule& schedule, int64_t steps) {
  constexpr int64_t kMaxComputed = 100'000;
  const int64_t last = steps - 1;
  double highest =
      std::max(schedule.at(static_cast<double>(last)),
               schedule.at(static_cast<double>(std::min(schedule.warmup_steps(), last))));
  for (int64_t step = 0; step < last; step += 1 + steps / kMaxComputed) {
    highest = std::max(highest, schedule.at(static_cast<double>(step)));
  }
  return highest;
}

// Adds a warning for each field that sets a learning rate above the base rate.
void add_rates_above_base(const ScheduleConfig& schedule, std::vector<std::string>& warnings) {
  const double base = schedule.learning_rate();
  const auto check = [&](const char* field, const char* what, double rate) {
    if (!(rate > base)) return;
    warnings.push_back(fmt::format("schedule.{}: {} {:.4g}, above schedule.learning_rate, {:.4g}",
                                   field, what, rate, base));
  };
  const OneCycleSchedule& cycle = schedule.one_cycle();
  check("cosine.min_learning_rate", "is", schedule.cosine().min_learning_rate());
  check("polynomial.min_learning_rate", "is", schedule.polynomial().min_learning_rate());
  check("one_cycle.start_divisor", "makes the schedule start at", base / cycle.start_divisor());
  check("one_cycle.final_divisor", "makes the schedule end at",
        base / cycle.start_divisor() / cycle.final_divisor());
  check("warmup.start_factor", "makes the warmup start at",
        base * schedule.warmup().start_factor());
}

}  // namespace

std::vector<std::string> schedule_warnings(const RunConfig& run, int64_t samples) {
  constexpr double kReached = 0.9;  // of the base rate; a short cycle has no step at its peak
  std::vector<std::string> warnings;
  add_rates_above_base(run.schedule(), warnings);
  if (samples == 0) return warnings;
  const Epochs epochs(samples, run.batch().global());
  const int64_t steps = steps_of(run.train(), epochs, 0, {});
  const Schedule schedule(run.schedule(), epochs.steps(),
                          epochs.in_steps(schedule_end(run.train(), epochs, 0, {})));
  const int64_t warmup = schedule.warmup_steps();
  if (steps == 0) return warnings;
  if (warmup >= steps) {
    warnings.push_back(fmt::format(
        "schedule.warmup: takes {} steps, but the run has {}, so the warmup is not over before the "
        "end",
        warmup, steps));
  } else if (const double base = run.schedule().learning_rate(),
             highest = highest_rate(schedule, steps);
             highest < kReached * base) {
    warnings.push_back(
        fmt::format("schedule.learning_rate: {:.4g} is never reached: the highest rate of the {} "
                    "steps is {:.4g}{}",
                    base, steps, highest,
                    warmup > 0 ? fmt::format("; schedule.warmup takes {} of them", warmup) : ""));
  }
  return warnings;
}

TrainingPlan::TrainingPlan(const RunConfig& run, int64_t samples, int64_t step, SamplePosition from)
    : epochs_(samples, run.batch().global()),
      total_steps_(steps_of(run.train(), epochs_, step, from)),
      schedule_(run.schedule(), epochs_.steps(),
                epochs_.in_steps(schedule_end(run.train(), epochs_, step, from))) {}

}  // namespace trireme::train
