// Group normalization of any shape [C, ...].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class GroupNorm final : public Layer {
 public:
  explicit GroupNorm(const GroupNormConfig& config) : config_(config) {}
  std::string_view kind() const override { return "group_norm"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    if (!(config_.epsilon() > 0)) throw Error("group_norm.epsilon: must be positive");
    const Shape channels{inputs[0][0]};
    if (!config_.has_num_groups()) {
      throw Error(fmt::format("group_norm.num_groups: is missing; it must divide the {} channels",
                              channels[0]));
    }
    if (config_.num_groups() < 1 || channels[0] % config_.num_groups() != 0) {
      throw Error(fmt::format("group_norm.num_groups: {} does not divide the {} channels of {}",
                              config_.num_groups(), channels[0], inputs[0].to_string()));
    }
    if (inputs[0].elements() == config_.num_groups()) {
      throw Error(fmt::format(
          "group_norm.num_groups: each of the {} groups of {} has a single value, whose "
          "normalized value is always 0",
          config_.num_groups(), inputs[0].to_string()));
    }
    Signature signature{.output = inputs[0], .parameters = {}, .running_stats = {}};
    if (config_.affine()) {
      declare_scale_and_shift(signature, channels, {Initializer::Kind::kConstant, 1, 0});
    }
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.input();
    const ValueId y = emit.new_value_like(x);
    ValueId saved = kNoValue;
    if (emit.training()) {
      saved = emit.new_value(emit.gradient_dtype(), {emit.batch(), config_.num_groups(), 2},
                             Layout::row_major());
      emit.save_for_backward(saved);
    }
    emit.emit(ops::GroupNormForward{config_.num_groups(), config_.epsilon()},
              {x, scale(emit), config_.affine() ? emit.parameter(1) : kNoValue, y, saved});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.trained() && !emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    const bool trained = emit.trained();
    emit.emit(ops::GroupNormBackward{config_.num_groups()},
              {emit.input(), dy, scale(emit), emit.saved(0), emit.state(), dx,
               trained ? emit.parameter_gradient(0) : kNoValue,
               trained ? emit.parameter_gradient(1) : kNoValue});
    emit.accumulate_gradient(0, dx);
  }

 private:
  ValueId scale(Emitter& emit) const { return config_.affine() ? emit.parameter(0) : kNoValue; }

  GroupNormConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_group_norm(const LayerConfig& config) {
  return std::make_unique<GroupNorm>(config.group_norm());
}

}  // namespace trireme::model
