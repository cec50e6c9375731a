#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "trainer/config/parameter_groups.h"

namespace trireme::train {
namespace {

TensorSpec array_spec(DType dtype, int64_t elements) {
  return {dtype, Shape{elements}, Layout::row_major()};
}

TensorSpec state_spec() { return array_spec(DType::kU8, int64_t{sizeof(ops::StepState)}); }
TensorSpec metrics_spec() { return array_spec(DType::kF32, ops::kMetricCount); }
TensorSpec loss_scale_spec() { return array_spec(DType::kU8, int64_t{sizeof(ops::LossScale)}); }

// Growth interval of a loss scale that remains 1: AdjustLossScale then only counts skipped updates.
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

ops::UpdateRule adam_rule(const AdamConfig& config, bool decoupled) {
  return ops::Adam{config.beta1(), config.beta2(), config.epsilon(), decoupled};
}

ops::UpdateRule rule_of(const OptimizerConfig& config) {
  switch (config.kind_case()) {
    case OptimizerConfig::kAdam:
      return adam_rule(config.adam(), /*decoupled=*/false);
    case OptimizerConfig::kAdamw:
      return adam_rule(config.adamw(), /*decoupled=*/true);
    case OptimizerConfig::kLion:
      return ops::Lion{config.lion().beta1(), config.lion().beta2()};
    case OptimizerConfig::kLars: {
      const LarsConfig& lars = config.lars();
      return ops::Lars{{lars.momentum(), lars.nesterov()},
                       lars.trust_coefficient(),
                       lars.epsilon(),
                       lars.trust_clip()};
    }
    case OptimizerConfig::kLamb: {
      const LambConfig& lamb = config.lamb();
      return ops::Lamb{lamb.beta1(), lamb.beta2(), lamb.epsilon(), lamb.trust_clip()};
    }
    case OptimizerConfig::kSgd:
    case OptimizerConfig::KIND_NOT_SET:
      break;
  }
  if (config.sgd().momentum() == 0) return ops::Sgd{};
  return ops::SgdMomentum{config.sgd().momentum(), config.sgd().nesterov()};
}

ops::UpdateRange range_of(const model::Parameter& parameter, const OptimizerConfig& config,
                          const ParameterGroupConfig* group) {
  const bool is_weight = parameter.decays || config.decay_bias_and_norm();
  const bool group_decays = group && group->has_weight_decay();
  return {
      .begin = parameter.begin,
      .end = parameter.end,
      .weight_decay = !is_weight     ? 0
                      : group_decays ? group->weight_decay()
                                     : config.weight_decay(),
      .learning_rate_scale = group ? group->learning_rate_scale() : 1,
      .use_trust_ratio = is_weight || config.lars().always_adapt() || config.lamb().always_adapt()};
}

// Returns whether an elementwise rule updates both ranges with the same settings.
bool have_same_settings(const ops::UpdateRange& a, const ops::UpdateRange& b) {
  return a.weight_decay == b.weight_decay && a.learning_rate_scale == b.learning_rate_scale &&
         a.slot_shift == b.slot_shift;
}

// Reduces each range, which is a tensor and so within one bucket, to what a shard has of it.
// `parts` are those of the shard, and ranges ascend.
void restrict_to(const std::vector<ArrayPart>& parts, const model::Parameters& parameters,
                 std::vector<ops::UpdateRange>& ranges) {
  size_t bucket = 0;
  for (ops::UpdateRange& range : ranges) {
    while (parts.size() > 1 && range.begin >= parameters.bucket_ends[bucket]) ++bucket;
    const ArrayPart& part = parts[bucket];
    range.begin = std::clamp(range.begin, part.begin, part.end);
    range.end = std::clamp(range.end, part.begin, part.end);
    range.slot_shift = part.slot_shift;
    range.gradient_shift = part.gradient_shift;
  }
}

// Returns the parameters without those that an earlier pipeline stage has, too: each is counted
// once in sums over stages.
model::Parameters own_parameters(model::Parameters parameters, int stage) {
  std::erase_if(parameters.all, [&](const model::Parameter& parameter) {
    return !parameter.stages.empty() && parameter.stages.front() != stage;
  });
  return parameters;
}

// Returns the ranges in the gradient array.
std::vector<ops::UpdateRange> gradient_ranges(std::vector<ops::UpdateRange> ranges) {
  for (ops::UpdateRange& range : ranges) {
    range.begin += range.gradient_shift;
    range.end += range.gradient_shift;
  }
  return ranges;
}

}  // namespace

std::vector<ops::UpdateRange> update_ranges(const model::Parameters& parameters,
                                            const OptimizerConfig& config, Shard shard) {
  const ParameterGroups groups(config);
  std::vector<ops::UpdateRange> all;
  for (const model::Parameter& parameter : parameters.all) {
    if (!parameter.frozen) all.push_back(range_of(parameter, config, groups.of(parameter.name)));
  }
  std::sort(all.begin(), all.end(),
            [](const ops::UpdateRange& a, const ops::UpdateRange& b) { return a.begin < b.begin; });
  restrict_to(parts_of(parameters, shard), parameters, all);
  if (ops::is_layer_wise(rule_of(config))) return all;
  std::vector<ops::UpdateRange> ranges;
  for (const ops::UpdateRange& range : all) {
    if (range.begin == range.end) continue;
    if (!ranges.empty() && ranges.back().end == range.begin &&
        have_same_settings(ranges.back(), range)) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

std::vector<std::string> optimizer_state_names(const OptimizerConfig& config) {
  const auto slots = ops::slots_of(rule_of(config));
  return {slots.begin(), slots.end()};
}

Optimizer::Optimizer(const RunConfig& config, const model::Parameters& parameters,
                     ops::Backend& backend, Shard shard, ModelRanks ranks)
    : device_(backend.device()), ranks_(ranks) {
  const TensorSpec gradients = array_spec(DType::kF32, gradient_elements(parameters, shard));
  const TensorSpec sum = array_spec(DType::kF64, 1);
  const TensorSpec scale = loss_scale_spec();
  ops::AdjustLossScale adjust;
  if (parameters.dtype == DType::kF16) {
    scale_plan_ = backend.plan(ops::ScaleLoss{}, std::array{scale, state_spec()});
  } else {
    adjust.growth_steps = kNever;
  }
  const int64_t elements = parameters.running_stat_elements;
  const TensorSpec stats = elements > 0 ? array_spec(DType::kF32, elements) : ops::absent();
  adjust_plan_ = backend.plan(adjust, std::array{sum, scale, stats, stats});
  outcome_ = device_.allocate(sizeof(Outcome));
  const ops::SumOfSquares squares{
      .ranges = gradient_ranges(
          update_ranges(own_parameters(parameters, ranks.stage), config.optimizer(), shard)),
      .checked_ranges = {{.begin = ops::kMetricLoss, .end = ops::kMetricLoss + 1}}};
  squares_plan_ = backend.plan(squares, std::array{gradients, sum});
  plan_update(config, parameters, backend, shard);
  size_t scratch = 0;
  for (const auto* plan : {&scale_plan_, &squares_plan_, &tensor_squares_plan_, &ratios_plan_,
                           &update_plan_, &adjust_plan_}) {
    if (*plan) scratch = std::max(scratch, (*plan)->scratch_bytes());
  }
  if (scratch > 0) scratch_ = device_.allocate(scratch);
}

void Optimizer::plan_update(const RunConfig& config, const model::Parameters& parameters,
                            ops::Backend& backend, Shard shard) {
  const OptimizerConfig& optimizer = config.optimizer();
  const TensorSpec array = array_spec(DType::kF32, parameters.trained_elements);
  const TensorSpec gradients = array_spec(DType::kF32, gradient_elements(parameters, shard));
  const TensorSpec low = parameters.low_precision()
                             ? array_spec(parameters.dtype, parameters.trained_elements)
                             : ops::absent();
  const TensorSpec squares = array_spec(DType::kF64, 1);
  const TensorSpec scale = loss_scale_spec();
  const ops::Update update{rule_of(optimizer),
                           update_ranges(parameters, optimizer, shard),
                           config.train().clip_norm(),
                           {optimizer.ema().decay(), optimizer.ema().warmup()}};
  TensorSpec ratios = ops::absent();
  std::vector<TensorSpec> slots;
  const TensorSpec slot = array_spec(DType::kF32, slot_elements(parameters, shard));
  for (const char* name : ops::slots_of(update.rule)) {
    state_.push_back({name, device_.allocate(slot.bytes())});
    slots.push_back(slot);
  }
  const auto with_slots = [&](std::vector<TensorSpec> specs) {
    specs.insert(specs.end(), slots.begin(), slots.end());
    return specs;
  };
  if (ops::is_layer_wise(update.rule)) {
    ratios = array_spec(DType::kF32, std::ssize(update.ranges));
    trust_ratios_ = device_.allocate(ratios.bytes());
    const TensorSpec sums{DType::kF64, {std::ssize(update.ranges), 2}, Layout::row_major()};
    tensor_squares_ = device_.allocate(sums.bytes());
    tensor_squares_plan_ = backend.plan(
        ops::TensorSquares{update.rule, update.ranges, update.max_norm},
        with_slots({array, gradients, squares, scale, metrics_spec(), state_spec(), sums}));
    ratios_plan_ = backend.plan(ops::TrustRatios{update.rule, update.ranges},
                                std::array{sums, state_spec(), ratios});
  }
  update_plan_ = backend.plan(
      update, with_slots({array, gradients, squares, scale, metrics_spec(), state_spec(), low,
                          ratios, uses_ema(optimizer) ? array : ops::absent()}));
}

void Optimizer::encode_loss_scaling(Stream& stream, ops::StepState* state) const {
  if (!scale_plan_) return;
  const std::array<void*, ops::ScaleLoss::kArgs> args{outcome(), state};
  scale_plan_->encode(stream, args, scratch_.data());
}

void Optimizer::encode(Stream& stream, const model::ModelArrays& model, void* averages,
                       const Buffer& running_stats_before, ops::StepState* state) const {
  void* const values = model.parameters;
  void* const gradients = model.gradients;
  void* const squares = this->squares();
  void* const scale = outcome();
  void* const metrics = gradients;  // they precede the gradients
  const std::array<void*, ops::SumOfSquares::kArgs> squares_args{gradients, squares};
  squares_plan_->encode(stream, squares_args, scratch_.data());
  sum_over(ranks_.shards, squares, 1, stream);
  sum_over(ranks_.stages, squares, 1, stream);
  void* const ratios = trust_ratios_.data();
  if (ratios_plan_) {
    void* const sums = tensor_squares_.data();
    encode_with_slots(*tensor_squares_plan_, stream,
                      {values, gradients, squares, scale, metrics, state, sums});
    const auto count = static_cast<int64_t>(tensor_squares_.bytes() / sizeof(double));
    sum_over(ranks_.shards, sums, count, stream);
    const std::array<void*, ops::TrustRatios::kArgs> args{sums, state, ratios};
    ratios_plan_->encode(stream, args, scratch_.data());
  }
  encode_with_slots(
      *update_plan_, stream,
      {values, gradients, squares, scale, metrics, state, model.low_precision, ratios, averages});
  const std::array<void*, ops::AdjustLossScale::kArgs> adjust_args{
      squares, scale, model.running_stats, running_stats_before.data()};
  adjust_plan_->encode(stream, adjust_args, scratch_.data());
}

void Optimizer::sum_over(Collective* ranks, void* values, int64_t count, Stream& stream) {
  if (ranks) ranks->all_reduce_sum(values, count, DType::kF64, stream);
}

void Optimizer::encode_with_slots(const ops::OpPlan& plan, Stream& stream,
                                  std::initializer_list<void*> args) const {
  std::array<void*, ops::Update::kSlots + ops::kMaxSlots> all;
  auto end = std::copy(args.begin(), args.end(), all.begin());
  for (const StateArray& array : state_) *end++ = array.values.data();
  plan.encode(stream, {all.begin(), end}, scratch_.data());
}

size_t Optimizer::state_bytes() const {
  size_t bytes = sizeof(ops::LossScale);
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
  device_.copy(outcome(), &value, sizeof value, stream);
  stream.synchronize();
}

}  // namespace trireme::train
