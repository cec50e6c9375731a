// Dropout of any shape; the identity in inference.
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Dropout final : public Layer {
 public:
  explicit Dropout(const DropoutConfig& config) : rate_(config.rate()) {}
  std::string_view kind() const override { return "dropout"; }
  bool is_causal() const override { return true; }
  bool is_identity() const override { return rate_ == 0; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    if (!(rate_ >= 0 && rate_ < 1)) throw Error("dropout.rate: must be at least 0 and below 1");
    return {.output = inputs[0], .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    if (!emit.training()) return emit.input();
    const ValueId y = emit.new_value_like(emit.input());
    emit.emit(ops::DropoutForward{rate_, emit.layer_id()}, {emit.input(), emit.state(), y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(dy);
    emit.emit(ops::DropoutBackward{rate_, emit.layer_id()}, {dy, emit.state(), dx});
    emit.accumulate_gradient(0, dx);
  }

 private:
  float rate_;
};

}  // namespace

std::unique_ptr<Layer> make_dropout(const LayerConfig& config) {
  return std::make_unique<Dropout>(config.dropout());
}

}  // namespace trireme::model
