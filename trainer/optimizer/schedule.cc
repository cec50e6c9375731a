#include "trainer/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::train {
namespace {

int64_t steps_of(double epochs, int64_t steps_per_epoch) {
  return std::max<int64_t>(1, std::llround(epochs * static_cast<double>(steps_per_epoch)));
}

template <class Message>
int64_t length_of(const Message& message, int64_t steps_per_epoch) {
  return message.has_steps() ? message.steps() : steps_of(message.epochs(), steps_per_epoch);
}

// Half a period of a cosine, from `from` at fraction 0 to `to` at fraction 1.
double cosine_between(double from, double to, double fraction) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * fraction));
}

// PyTorch's OneCycleLR over `length` steps. The last step has the smallest rate.
double one_cycle(const OneCycleSchedule& cycle, double max, double step, double length) {
  const double start = max / cycle.start_divisor();
  const double end = start / cycle.final_divisor();
  const double peak = cycle.rising_fraction() * length - 1;
  if (step <= peak && peak > 0) return cosine_between(start, max, step / peak);
  const double fall_begin = std::max(peak, 0.0);
  const double fall = length - 1 - fall_begin;
  return cosine_between(max, end, fall > 0 ? std::min(1.0, (step - fall_begin) / fall) : 1.0);
}

}  // namespace

Schedule::Schedule(const ScheduleConfig& config, int64_t steps_per_epoch, double total_steps)
    : config_(config), total_steps_(total_steps) {
  if (config.has_warmup()) warmup_steps_ = length_of(config.warmup(), steps_per_epoch);
  if (config.has_step()) step_length_ = length_of(config.step(), steps_per_epoch);
  const MultiStepSchedule& multi = config.multi_step();
  milestones_.assign(multi.steps().begin(), multi.steps().end());
  for (double epochs : multi.epochs()) milestones_.push_back(steps_of(epochs, steps_per_epoch));
}

double Schedule::at(double step) const {
  const auto warmup = static_cast<double>(warmup_steps_);
  if (step >= warmup) return shape(step);
  const double start = config_.warmup().start_factor();
  const double fraction = step / warmup;
  return shape(step) * (start + (1 - start) * fraction);
}

double Schedule::shape(double step) const {
  const double base = config_.learning_rate();
  const auto warmup = static_cast<double>(warmup_steps_);
  const double length = std::max(1.0, total_steps_ - warmup);
  const double passed = std::clamp(step - warmup, 0.0, length);
  switch (config_.kind_case()) {
    case ScheduleConfig::kStep:
      return base *
             std::pow(config_.step().gamma(), std::floor(step / static_cast<double>(step_length_)));
    case ScheduleConfig::kMultiStep: {
      const auto passed_by = std::ranges::count_if(
          milestones_, [&](int64_t milestone) { return static_cast<double>(milestone) <= step; });
      return base * std::pow(config_.multi_step().gamma(), static_cast<double>(passed_by));
    }
    case ScheduleConfig::kCosine:
      return cosine_between(base, config_.cosine().min_learning_rate(), passed / length);
    case ScheduleConfig::kPolynomial: {
      const double min_rate = config_.polynomial().min_learning_rate();
      return min_rate +
             (base - min_rate) * std::pow(1 - passed / length, config_.polynomial().power());
    }
    case ScheduleConfig::kOneCycle:
      return one_cycle(config_.one_cycle(), base, passed, length);
    case ScheduleConfig::kConstant:
    case ScheduleConfig::KIND_NOT_SET:
      break;
  }
  return base;
}

}  // namespace trireme::train
