// Elementwise activations of any shape.
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(ops::Activation activation) : activation_(activation) {}
  std::string_view kind() const override { return name_of(activation_); }
  ops::Activation as_activation() const override { return activation_; }
  bool is_causal() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return {.output = inputs[0], .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value_like(emit.input());
    emit.emit(ops::ActivationForward{activation_}, {emit.input(), y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    const ValueId saved = ops::derivative_uses_output(activation_) ? emit.output() : emit.input();
    emit.emit(ops::ActivationBackward{activation_}, {saved, dy, dx});
    emit.accumulate_gradient(0, dx);
  }

 private:
  ops::Activation activation_;
};

}  // namespace

std::unique_ptr<Layer> make_activation(ops::Activation activation) {
  return std::make_unique<ActivationLayer>(activation);
}

}  // namespace trireme::model
