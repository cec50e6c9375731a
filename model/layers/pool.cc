// Max and average pooling over windows: [C, H, W] -> [C, OH, OW], and global average pooling:
// [C, H, W] -> [C, 1, 1].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

ops::PoolGeometry geometry_of(const PoolConfig& config) {
  const auto kernel = height_width(config.kernel(), {0, 0}, "kernel", 1);
  return {.kernel = kernel,
          .stride = height_width(config.stride(), kernel, "stride", 1),
          .padding = height_width(config.padding(), {0, 0}, "padding", 0)};
}

Shape pooled(const Shape& input, const ops::PoolGeometry& g) {
  Shape output = input;
  for (int i = 0; i < 2; ++i) {
    const size_t side = i;
    if (g.padding[side] * 2 > g.kernel[side]) {
      throw Error(fmt::format("padding: {} is more than half of the kernel {}", g.padding[side],
                              g.kernel[side]));
    }
    const int64_t padded = input[i + 1] + 2 * g.padding[side];
    if (padded < g.kernel[side]) {
      throw Error(fmt::format("the window spans {} {}, but the padded input {} has only {}",
                              g.kernel[side], i == 0 ? "rows" : "columns", input.to_string(),
                              padded));
    }
    output[i + 1] = (padded - g.kernel[side]) / g.stride[side] + 1;
  }
  return output;
}

class MaxPool final : public Layer {
 public:
  explicit MaxPool(const PoolConfig& config) : config_(config) {}
  std::string_view kind() const override { return "max_pool"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "[C, H, W]");
    return {
        .output = pooled(inputs[0], geometry_of(config_)), .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape());
    const ValueId indices = emit.training() ? emit.workspace() : kNoValue;
    emit.emit(ops::MaxPoolForward{geometry_of(config_)}, {emit.input(), y, indices});
    if (emit.training()) emit.save_for_backward(indices);
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::MaxPoolBackward{geometry_of(config_)}, {dy, emit.saved(0), dx});
    emit.accumulate_gradient(0, dx);
  }

 private:
  PoolConfig config_;
};

// Average pooling over windows, or over each channel (`global`).
class AveragePool final : public Layer {
 public:
  AveragePool(const PoolConfig& config, bool global) : config_(config), global_(global) {}
  std::string_view kind() const override { return global_ ? "global_pool" : "average_pool"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "[C, H, W]");
    if (global_) return {.output = {inputs[0][0], 1, 1}, .parameters = {}, .running_stats = {}};
    return {
        .output = pooled(inputs[0], geometry_of(config_)), .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape());
    emit.emit(ops::AveragePoolForward{geometry(emit), config_.include_padding()},
              {emit.input(), y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::AveragePoolBackward{geometry(emit), config_.include_padding()}, {dy, dx});
    emit.accumulate_gradient(0, dx);
  }

 private:
  ops::PoolGeometry geometry(const Emitter& emit) const {
    if (!global_) return geometry_of(config_);
    const Shape& x = emit.spec(emit.input()).shape;
    return {.kernel = {x[2], x[3]}, .stride = {x[2], x[3]}, .padding = {0, 0}};
  }

  PoolConfig config_;
  bool global_;
};

}  // namespace

std::unique_ptr<Layer> make_max_pool(const LayerConfig& config) {
  return std::make_unique<MaxPool>(config.max_pool());
}
std::unique_ptr<Layer> make_average_pool(const LayerConfig& config) {
  return std::make_unique<AveragePool>(config.average_pool(), /*global=*/false);
}
std::unique_ptr<Layer> make_global_pool(const LayerConfig&) {
  return std::make_unique<AveragePool>(PoolConfig(), /*global=*/true);
}

}  // namespace trireme::model
