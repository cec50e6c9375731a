// Layer normalization over all features of a sample: [F] -> [F].
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class LayerNorm final : public Layer {
 public:
  explicit LayerNorm(const LayerNormConfig& config) : config_(config) {}
  std::string_view kind() const override { return "layer_norm"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 1, "[F]");
    if (!(config_.epsilon() > 0)) throw Error("layer_norm.epsilon: must be positive");
    Signature signature{.output = inputs[0], .parameters = {}, .running_stats = {}};
    declare_scale_and_shift(signature, inputs[0], {Initializer::Kind::kConstant, 1, 0});
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.input();
    const ValueId y = emit.new_value_like(x);
    ValueId saved = kNoValue;
    if (emit.training()) {
      saved = emit.new_value(emit.gradient_dtype(), {emit.batch(), 2}, Layout::row_major());
      emit.save_for_backward(saved);
    }
    emit.emit(ops::LayerNormForward{config_.epsilon()},
              {x, emit.parameter(0), emit.parameter(1), y, saved});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::LayerNormBackward{}, {emit.input(), dy, emit.parameter(0), emit.saved(0), dx,
                                         emit.parameter_gradient(0), emit.parameter_gradient(1)});
    emit.accumulate_gradient(0, dx);
  }

 private:
  LayerNormConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_layer_norm(const LayerConfig& config) {
  return std::make_unique<LayerNorm>(config.layer_norm());
}

}  // namespace trireme::model
