// SwiGLU (Shazeer, arXiv:2002.05202): [..., 2 * F] -> [..., F], silu(first half) * second half.
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Swiglu final : public Layer {
 public:
  std::string_view kind() const override { return "swiglu"; }
  bool is_causal() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_features(inputs[0]);
    Shape output = inputs[0];
    int64_t& width = output[output.rank() - 1];
    if (width % 2 != 0) {
      throw Error(
          fmt::format("requires an even number of features, got {}", inputs[0].to_string()));
    }
    width /= 2;
    return {.output = output, .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape(), Layout::row_major());
    emit.emit(ops::SwigluForward{}, {emit.rows(emit.input()), emit.rows(y)});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.row_major(emit.input()));
    emit.emit(ops::SwigluBackward{}, {emit.rows(emit.input()), emit.rows(dy), emit.rows(dx)});
    emit.accumulate_gradient(0, emit.converted(dx, emit.spec(emit.input())));
  }
};

}  // namespace

std::unique_ptr<Layer> make_swiglu(const LayerConfig&) { return std::make_unique<Swiglu>(); }

}  // namespace trireme::model
