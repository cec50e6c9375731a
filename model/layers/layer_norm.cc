// Layer normalization and RMS normalization over the features of a sample, [F] -> [F], or of each
// position of a sequence, [T, F] -> [T, F].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

// RMS normalization is the form that is not centered.
class LayerNorm final : public Layer {
 public:
  LayerNorm(bool centered, float epsilon) : centered_(centered), epsilon_(epsilon) {}
  std::string_view kind() const override { return centered_ ? "layer_norm" : "rms_norm"; }
  bool is_causal() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_features(inputs[0]);
    if (!(epsilon_ > 0)) throw Error(fmt::format("{}.epsilon: must be positive", kind()));
    Signature signature{.output = inputs[0], .parameters = {}, .running_stats = {}};
    const Shape features{inputs[0][inputs[0].rank() - 1]};
    if (centered_ && features[0] == 1) {
      throw Error(
          fmt::format("layer_norm: needs at least 2 features, since the normalized value of a "
                      "single one is always 0, got {}",
                      inputs[0].to_string()));
    }
    constexpr Initializer kOnes{Initializer::Kind::kConstant, 1, 0};
    if (centered_) {
      declare_scale_and_shift(signature, features, kOnes);
    } else {
      declare_scale(signature, features, kOnes);
    }
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.rows(emit.input());
    const ValueId y = emit.new_output();
    ValueId saved = kNoValue;
    if (emit.training()) {
      saved =
          emit.new_value(emit.gradient_dtype(), {emit.spec(x).shape[0], 2}, Layout::row_major());
      emit.save_for_backward(saved);
    }
    emit.emit(
        ops::LayerNormForward{epsilon_, centered_},
        {x, emit.parameter(0), centered_ ? emit.parameter(1) : kNoValue, emit.rows(y), saved});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(
        ops::LayerNormBackward{centered_},
        {emit.rows(emit.input()), emit.rows(dy), emit.parameter(0), emit.saved(0), emit.rows(dx),
         emit.parameter_gradient(0), centered_ ? emit.parameter_gradient(1) : kNoValue});
    emit.accumulate_gradient(0, dx);
  }

 private:
  bool centered_;
  float epsilon_;
};

}  // namespace

std::unique_ptr<Layer> make_layer_norm(const LayerConfig& config) {
  return std::make_unique<LayerNorm>(/*centered=*/true, config.layer_norm().epsilon());
}
std::unique_ptr<Layer> make_rms_norm(const LayerConfig& config) {
  return std::make_unique<LayerNorm>(/*centered=*/false, config.rms_norm().epsilon());
}

}  // namespace trireme::model
