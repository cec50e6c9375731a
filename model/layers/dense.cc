// Fully connected layer: [F] -> [units], or [T, F] -> [T, units] for each position of a sequence.
#include <fmt/format.h>

#include <utility>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Dense final : public Layer {
 public:
  explicit Dense(const DenseConfig& config) : config_(config) {}
  std::string_view kind() const override { return "dense"; }
  bool is_causal() const override { return true; }
  bool is_linear() const override { return activation_ == ops::Activation::kNone; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    if (config_.units() < 1) {
      throw Error(config_.has_units()
                      ? "dense.units: must be at least 1"
                      : "dense.units: must be at least 1; it may be unset only before "
                        "softmax_cross_entropy, and if the data has classes");
    }
    Shape output = inputs[0];
    if (output.rank() != 1 && output.rank() != 2) {
      throw Error(
          fmt::format("requires an input of shape [F], or [T, F] for a sequence, got {}; put "
                      "a flatten layer before it",
                      inputs[0].to_string()));
    }
    const int64_t out = config_.units();
    const int64_t in = std::exchange(output[output.rank() - 1], out);
    Signature signature{.output = output, .parameters = {}, .running_stats = {}};
    declare_weights(signature, config_, {out, in}, in, out);
    signature.parameters[0].tied_to = config_.tied_to();
    return signature;
  }

  bool fuse(const Layer& next) override { return fuse_activation(activation_, next); }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_output();
    emit.emit(ops::DenseForward{activation_},
              {emit.rows(emit.input()), emit.parameter(0), bias(emit), emit.rows(y), kNoValue});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    dy = backward_through_activation(emit, activation_, emit.output(), dy);
    if (emit.trained()) {
      emit.emit(ops::DenseBackwardWeights{},
                {emit.rows(emit.input()), emit.rows(dy), emit.parameter_gradient(0),
                 config_.bias() ? emit.parameter_gradient(1) : kNoValue});
    }
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::DenseBackwardData{},
              {emit.rows(dy), emit.parameter(0), emit.rows(dx), kNoValue});
    emit.accumulate_gradient(0, dx);
  }

  void emit_with_loss(Emitter& emit, const ops::SoftmaxCrossEntropy& loss) const override {
    const bool trained = emit.training() && emit.trained();
    const bool needs_dx = emit.training() && emit.needs_gradient();
    const ValueId dx = needs_dx ? emit.new_value_like(emit.input()) : kNoValue;
    emit.emit(
        ops::LinearCrossEntropy{loss},
        {emit.rows(emit.input()), emit.parameter(0), bias(emit), emit.target_rows(), emit.state(),
         needs_dx ? emit.rows(dx) : kNoValue, trained ? emit.parameter_gradient(0) : kNoValue,
         trained && config_.bias() ? emit.parameter_gradient(1) : kNoValue, emit.metrics()});
    if (needs_dx) emit.accumulate_gradient(0, dx);
  }

 private:
  ValueId bias(Emitter& emit) const { return config_.bias() ? emit.parameter(1) : kNoValue; }

  DenseConfig config_;
  ops::Activation activation_ = ops::Activation::kNone;
};

}  // namespace

std::unique_ptr<Layer> make_dense(const LayerConfig& config) {
  return std::make_unique<Dense>(config.dense());
}

}  // namespace trireme::model
