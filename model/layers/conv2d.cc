// 2D convolution: [C, H, W] -> [channels, OH, OW].
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"
#include "model/size.h"

namespace trireme::model {
namespace {

class Conv2d final : public Layer {
 public:
  explicit Conv2d(const Conv2dConfig& config) : config_(config) {}
  std::string_view kind() const override { return "conv2d"; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    require_rank(inputs[0], 3, "[C, H, W]");
    if (config_.channels() < 1) throw Error("conv2d.channels: must be at least 1");
    if (config_.kernel().empty()) throw Error("conv2d.kernel: is missing");
    const ops::Conv2dGeometry g = geometry();
    const auto kernel = height_width(config_.kernel(), {1, 1}, "conv2d.kernel", 1);
    const int64_t in = inputs[0][0];
    const int64_t out = config_.channels();
    if (g.groups < 1 || in % g.groups != 0 || out % g.groups != 0) {
      throw Error(
          fmt::format("conv2d.groups: {} must divide the {} input and the {} output channels",
                      g.groups, in, out));
    }
    Signature signature{.output = {out, 0, 0}, .parameters = {}, .running_stats = {}};
    for (int i = 0; i < 2; ++i) {
      const size_t side = i;
      const int64_t reach = g.dilation[side] * (kernel[side] - 1) + 1;
      const int64_t padded = inputs[0][i + 1] + 2 * g.padding[side];
      if (padded < reach) {
        throw Error(fmt::format("the kernel spans {} {}, but the padded input {} has only {}",
                                reach, i == 0 ? "rows" : "columns", inputs[0].to_string(), padded));
      }
      signature.output[i + 1] = (padded - reach) / g.stride[side] + 1;
    }
    const Shape weight = {out, in / g.groups, kernel[0], kernel[1]};
    require_size("weight", weight);  // so that fan-in and fan-out do not overflow
    const int64_t area = kernel[0] * kernel[1];
    declare_weights(signature, config_, weight, in / g.groups * area, out / g.groups * area);
    return signature;
  }

  bool fuse(const Layer& next) override { return fuse_activation(activation_, next); }

  bool fold(const ChannelScale& next) override {
    if (activation_ != ops::Activation::kNone) return false;
    activation_ = next.activation;
    config_.set_bias(true);
    return true;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value(emit.output_shape());
    emit.emit(ops::Conv2dForward{geometry(), activation_},
              {emit.input(), emit.parameter(0), config_.bias() ? emit.parameter(1) : kNoValue, y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    dy = backward_through_activation(emit, activation_, emit.output(), dy);
    if (emit.trained()) {
      emit.emit(ops::Conv2dBackwardWeights{geometry()},
                {emit.input(), dy, emit.parameter_gradient(0),
                 config_.bias() ? emit.parameter_gradient(1) : kNoValue});
    }
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(emit.input());
    emit.emit(ops::Conv2dBackwardData{geometry()}, {dy, emit.parameter(0), dx});
    emit.accumulate_gradient(0, dx);
  }

 private:
  ops::Conv2dGeometry geometry() const {
    return {.stride = height_width(config_.stride(), {1, 1}, "conv2d.stride", 1),
            .padding = height_width(config_.padding(), {0, 0}, "conv2d.padding", 0),
            .dilation = height_width(config_.dilation(), {1, 1}, "conv2d.dilation", 1),
            .groups = config_.groups()};
  }

  Conv2dConfig config_;
  ops::Activation activation_ = ops::Activation::kNone;
};

}  // namespace

std::unique_ptr<Layer> make_conv2d(const LayerConfig& config) {
  return std::make_unique<Conv2d>(config.conv2d());
}

}  // namespace trireme::model
