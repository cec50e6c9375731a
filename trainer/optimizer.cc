#include "trainer/optimizer.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

TensorSpec array_spec(DType dtype, int64_t elements) {
  return {dtype, Shape{elements}, Layout::row_major()};
}

TensorSpec state_spec() { return array_spec(DType::kU8, static_cast<int64_t>(sizeof(StepState))); }

}  // namespace

std::vector<UpdateRange> update_ranges(const Parameters& parameters,
                                       const OptimizerConfig& config) {
  std::vector<UpdateRange> all;
  for (const Parameter& parameter : parameters.trained) {
    const bool decays = parameter.decays || config.decay_bias_and_norm();
    all.push_back({.begin = parameter.begin,
                   .end = parameter.end,
                   .weight_decay = decays ? config.weight_decay() : 0});
  }
  std::sort(all.begin(), all.end(),
            [](const UpdateRange& a, const UpdateRange& b) { return a.begin < b.begin; });
  std::vector<UpdateRange> ranges;
  for (const UpdateRange& range : all) {
    if (!ranges.empty() && ranges.back().end == range.begin &&
        ranges.back().weight_decay == range.weight_decay) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

Optimizer::Optimizer(const RunConfig& config, const Parameters& parameters, Backend& backend)
    : device_(backend.device()) {
  const OptimizerConfig& optimizer = config.optimizer();
  const TensorSpec array = array_spec(DType::kF32, parameters.elements);
  const TensorSpec sum = array_spec(DType::kF64, 1);
  const float max_norm = config.train().clip_norm();
  const UpdateCommon common{update_ranges(parameters, optimizer), max_norm};
  const TensorSpec squares = max_norm > 0 ? sum : absent();
  const auto add_state = [&](const char* name) {
    state_.push_back({name, device_.allocate(array.bytes())});
  };

  if (max_norm > 0) {
    const std::array<TensorSpec, SumOfSquares::kArgs> specs{array, sum};
    squares_plan_ = backend.plan(SumOfSquares{common.ranges}, specs);
    squares_ = device_.allocate(sum.bytes());
  }
  if (optimizer.has_adam() || optimizer.has_adamw()) {
    const AdamConfig& adam = optimizer.has_adam() ? optimizer.adam() : optimizer.adamw();
    AdamUpdate update{common, adam.beta1(), adam.beta2(), adam.epsilon(), optimizer.has_adamw()};
    add_state("moment1");
    add_state("moment2");
    const std::array<TensorSpec, AdamUpdate::kArgs> specs{
        array, array, array, array, squares, absent(), state_spec(), absent()};
    update_plan_ = backend.plan(update, specs);
  } else {
    SgdUpdate update{common, optimizer.sgd().momentum(), optimizer.sgd().nesterov()};
    if (update.momentum > 0) add_state("velocity");
    const TensorSpec velocity = update.momentum > 0 ? array : absent();
    const std::array<TensorSpec, SgdUpdate::kArgs> specs{array,    array,        velocity, squares,
                                                         absent(), state_spec(), absent()};
    update_plan_ = backend.plan(update, specs);
  }
  const size_t scratch =
      std::max(update_plan_->scratch_bytes(), squares_plan_ ? squares_plan_->scratch_bytes() : 0);
  if (scratch > 0) scratch_ = device_.allocate(scratch);
}

void Optimizer::encode(Stream& stream, void* parameters, void* gradients, StepState* state) {
  if (squares_plan_) {
    const std::array<void*, SumOfSquares::kArgs> args{gradients, squares_.data()};
    squares_plan_->encode(stream, args, scratch_.data());
  }
  if (state_.size() == 2) {
    const std::array<void*, AdamUpdate::kArgs> args{parameters,
                                                    gradients,
                                                    state_[0].values.data(),
                                                    state_[1].values.data(),
                                                    squares_.data(),
                                                    nullptr,
                                                    state,
                                                    nullptr};
    update_plan_->encode(stream, args, scratch_.data());
  } else {
    void* velocity = state_.empty() ? nullptr : state_[0].values.data();
    const std::array<void*, SgdUpdate::kArgs> args{parameters, gradients, velocity, squares_.data(),
                                                   nullptr,    state,     nullptr};
    update_plan_->encode(stream, args, scratch_.data());
  }
}

size_t Optimizer::state_bytes() const {
  size_t bytes = 0;
  for (const StateArray& array : state_) bytes += array.values.bytes();
  return bytes;
}

void Optimizer::zero_state(Stream& stream) {
  for (StateArray& array : state_) {
    device_.fill_zero(array.values.data(), array.values.bytes(), stream);
  }
}

}  // namespace trireme
