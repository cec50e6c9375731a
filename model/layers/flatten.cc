// Flattens any shape in row-major order: [C, H, W] -> [C * H * W].
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Flatten final : public Layer {
 public:
  std::string_view kind() const override { return "flatten"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    return {.output = {inputs[0].elements()}, .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    return emit.view(emit.row_major(emit.input()), emit.output_shape());
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId x = emit.input();
    const ValueId shaped = emit.view(emit.row_major(dy), emit.spec(x).shape);
    emit.accumulate_gradient(0, emit.converted(shaped, emit.spec(x)));
  }
};

}  // namespace

std::unique_ptr<Layer> make_flatten(const LayerConfig&) { return std::make_unique<Flatten>(); }

}  // namespace trireme::model
