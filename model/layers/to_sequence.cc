// The positions of an image as a sequence, row by row: [C, H, W] -> [H * W, C].
#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

// An image in channels-last layout is such a sequence.
class ToSequence final : public Layer {
 public:
  std::string_view kind() const override { return "to_sequence"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "[C, H, W]");
    return {.output = {inputs[0][1] * inputs[0][2], inputs[0][0]},
            .parameters = {},
            .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const TensorSpec image = emit.spec(emit.input()).with(Layout::channels_last());
    return emit.view(emit.converted(emit.input(), image), emit.output_shape(), Layout::row_major());
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const TensorSpec& x = emit.spec(emit.input());
    const ValueId image = emit.view(emit.row_major(dy), x.shape, Layout::channels_last());
    emit.accumulate_gradient(0, emit.converted(image, emit.spec(emit.input())));
  }
};

}  // namespace

std::unique_ptr<Layer> make_to_sequence(const LayerConfig&) {
  return std::make_unique<ToSequence>();
}

}  // namespace trireme::model
