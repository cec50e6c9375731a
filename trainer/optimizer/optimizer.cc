#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace trireme::train {
namespace {

TensorSpec array_spec(DType dtype, int64_t elements) {
  return {dtype, Shape{elements}, Layout::row_major()};
}

TensorSpec state_spec() { return array_spec(DType::kU8, int64_t{sizeof(ops::StepState)}); }
TensorSpec loss_scale_spec() { return array_spec(DType::kU8, int64_t{sizeof(ops::LossScale)}); }

// A scale of 1 that never grows: AdjustLossScale then only counts what is skipped.
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

ops::UpdateRule rule_of(const OptimizerConfig& config) {
  if (config.has_adam() || config.has_adamw()) {
    const AdamConfig& adam = config.has_adam() ? config.adam() : config.adamw();
    return ops::Adam{adam.beta1(), adam.beta2(), adam.epsilon(), config.has_adamw()};
  }
  if (config.sgd().momentum() > 0) {
    return ops::SgdMomentum{config.sgd().momentum(), config.sgd().nesterov()};
  }
  return ops::Sgd{};
}

}  // namespace

std::vector<ops::UpdateRange> update_ranges(const model::Parameters& parameters,
                                            const OptimizerConfig& config) {
  std::vector<ops::UpdateRange> all;
  for (const model::Parameter& parameter : parameters.all) {
    if (parameter.frozen) continue;
    const bool decays = parameter.decays || config.decay_bias_and_norm();
    all.push_back({.begin = parameter.begin,
                   .end = parameter.end,
                   .weight_decay = decays ? config.weight_decay() : 0});
  }
  std::sort(all.begin(), all.end(),
            [](const ops::UpdateRange& a, const ops::UpdateRange& b) { return a.begin < b.begin; });
  std::vector<ops::UpdateRange> ranges;
  for (const ops::UpdateRange& range : all) {
    if (!ranges.empty() && ranges.back().end == range.begin &&
        ranges.back().weight_decay == range.weight_decay) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

std::vector<std::string> optimizer_arrays(const OptimizerConfig& config) {
  const auto slots = ops::slots_of(rule_of(config));
  return {slots.begin(), slots.end()};
}

Optimizer::Optimizer(const RunConfig& config, const model::Parameters& parameters,
                     ops::Backend& backend)
    : device_(backend.device()) {
  const TensorSpec array = array_spec(DType::kF32, parameters.trained_elements);
  const TensorSpec sum = array_spec(DType::kF64, 1);
  const TensorSpec scale = loss_scale_spec();
  ops::AdjustLossScale adjust;
  if (parameters.dtype == DType::kF16) {
    scale_plan_ = backend.plan(ops::ScaleLoss{}, std::array{scale, state_spec()});
  } else {
    adjust.growth_steps = kNever;
  }
  adjust_plan_ = backend.plan(adjust, std::array{sum, scale});
  loss_scale_ = device_.allocate(scale.bytes());
  const ops::SumOfSquares squares{
      .ranges = update_ranges(parameters, config.optimizer()),
      .watched = {{.begin = ops::kMetricLoss, .end = ops::kMetricLoss + 1}}};
  squares_plan_ = backend.plan(squares, std::array{array, sum});
  squares_ = device_.allocate(sum.bytes());
  plan_update(config, parameters, backend);
  size_t scratch = 0;
  for (const auto* plan : {&scale_plan_, &squares_plan_, &update_plan_, &adjust_plan_}) {
    if (*plan) scratch = std::max(scratch, (*plan)->scratch_bytes());
  }
  if (scratch > 0) scratch_ = device_.allocate(scratch);
}

void Optimizer::plan_update(const RunConfig& config, const model::Parameters& parameters,
                            ops::Backend& backend) {
  const OptimizerConfig& optimizer = config.optimizer();
  const TensorSpec array = array_spec(DType::kF32, parameters.trained_elements);
  const TensorSpec low = parameters.low_precision()
                             ? array_spec(parameters.dtype, parameters.trained_elements)
                             : ops::absent();
  const TensorSpec squares = array_spec(DType::kF64, 1);
  const TensorSpec scale = loss_scale_spec();
  const ops::Update update{rule_of(optimizer), update_ranges(parameters, optimizer),
                           config.train().clip_norm()};
  std::vector<TensorSpec> specs{array, array, squares, scale, state_spec(), low};
  for (const char* name : ops::slots_of(update.rule)) {
    state_.push_back({name, device_.allocate(array.bytes())});
    specs.push_back(array);
  }
  update_plan_ = backend.plan(update, specs);
}

void Optimizer::encode_before(Stream& stream, ops::StepState* state) const {
  if (!scale_plan_) return;
  const std::array<void*, ops::ScaleLoss::kArgs> args{loss_scale_.data(), state};
  scale_plan_->encode(stream, args, scratch_.data());
}

void Optimizer::encode(Stream& stream, void* values, void* low_precision, void* gradients,
                       ops::StepState* state) const {
  void* const squares = squares_.data();
  void* const scale = loss_scale_.data();
  const std::array<void*, ops::SumOfSquares::kArgs> squares_args{gradients, squares};
  squares_plan_->encode(stream, squares_args, scratch_.data());
  std::array<void*, ops::Update::kSlots + ops::kMaxSlots> args{values, gradients, squares,
                                                               scale,  state,     low_precision};
  for (size_t i = 0; i < state_.size(); ++i)
    args[ops::Update::kSlots + i] = state_[i].values.data();
  update_plan_->encode(stream, ops::Args(args).first(ops::Update::kSlots + state_.size()),
                       scratch_.data());
  const std::array<void*, ops::AdjustLossScale::kArgs> adjust_args{squares, scale};
  adjust_plan_->encode(stream, adjust_args, scratch_.data());
}

size_t Optimizer::state_bytes() const {
  size_t bytes = loss_scale_.bytes();
  for (const StateArray& array : state_) bytes += array.values.bytes();
  return bytes;
}

void Optimizer::reset_state(Stream& stream) {
  for (StateArray& array : state_) {
    device_.fill_zero(array.values.data(), array.values.bytes(), stream);
  }
  set_loss_scale({}, stream);
}

void Optimizer::set_loss_scale(ops::LossScale value, Stream& stream) {
  if (!scales_loss()) value = {.scale = 1, .skipped = value.skipped};
  device_.copy(loss_scale_.data(), &value, sizeof value, stream);
  stream.synchronize();
}

}  // namespace trireme::train
