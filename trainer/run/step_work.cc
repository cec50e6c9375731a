#include "trainer/run/step_work.h"

#include <algorithm>
#include <array>

#include "comm/control.h"

namespace trireme::train {

std::optional<double> StepWork::Amount::utilization(double seconds) const {
  if (floor_seconds <= 0 || seconds <= 0) return std::nullopt;
  return floor_seconds / seconds;
}

std::optional<double> StepWork::Amount::padding_share() const {
  if (tokens <= 0) return std::nullopt;
  return padding / tokens;
}

StepWork::Amount StepWork::Amount::operator+(const Amount& other) const {
  return {floor_seconds + other.floor_seconds, tokens + other.tokens, padding + other.padding};
}

StepWork::Amount StepWork::Amount::operator-(const Amount& other) const {
  return {floor_seconds - other.floor_seconds, tokens - other.tokens, padding - other.padding};
}

// Ranks differ in their pipeline stages, and in their peaks.
StepWork::StepWork(const Step& step, comm::Communicator& communicator, double peak_flops)
    : step_(step) {
  data::Batch full;
  full.global_rows = step.plan().global;
  full_ = size_of(full);
  std::array<double, 3> all{step.flops(full), peak_flops, peak_flops > 0 ? 0.0 : 1.0};
  comm::sum(communicator, all);
  const bool known = all[0] > 0 && all[2] == 0;
  if (known) floor_seconds_ = all[0] / all[1];
}

// A stage may have no floating-point operations, but all compute the same number of micro-batches.
double StepWork::size_of(const data::Batch& batch) const {
  const Grid& grid = step_.stage().grid;
  if (!grid.has_pipeline()) return step_.flops(batch);
  return static_cast<double>(step_.plan().passes_of(batch.global_rows, grid.replicas));
}

void StepWork::count_padding(const data::Dataset& training, const data::OrderOptions& order,
                             uint64_t seed) {
  lengths_ = training.lengths();
  order_ = order;
  seed_ = seed;
  longest_ = lengths_.empty() ? 0 : training.spec().input.shape[0];
}

StepWork::Amount StepWork::of(const data::Batch& batch) const {
  Amount amount;
  if (floor_seconds_ > 0) amount.floor_seconds = floor_seconds_ * size_of(batch) / full_;
  if (lengths_.empty()) return amount;
  const data::Order order(order_, seed_, batch.epoch, std::ssize(lengths_));
  double texts = 0;
  for (int64_t row = 0; row < batch.global_rows; ++row) {
    texts += lengths_[static_cast<size_t>(order(batch.position + row))];
  }
  const int64_t length = batch.length > 0 ? batch.length : longest_;
  amount.tokens = static_cast<double>(batch.global_rows * length);
  amount.padding = std::max(0.0, amount.tokens - texts);
  return amount;
}

}  // namespace trireme::train
