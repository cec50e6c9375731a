// Scale and shift by trained numbers. Each number is that of a channel of a depthwise convolution
// with a kernel of 1, which computes it.
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class ScaleLayer final : public Layer {
 public:
  explicit ScaleLayer(const ScaleConfig& config) : config_(config) {}
  std::string_view kind() const override { return "scale"; }
  bool is_causal() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 1);
    if (!config_.weight() && !config_.bias()) {
      throw Error("has neither scale.weight nor scale.bias, so it does nothing");
    }
    if (config_.per() == ScaleConfig::ELEMENT && inputs[0].rank() == 2) {
      throw Error(fmt::format("scale.per: ELEMENT is not for sequences, {}, whose length may vary",
                              inputs[0].to_string()));
    }
    const int64_t count = numbers(inputs[0]);
    Signature signature{.output = inputs[0], .parameters = {}, .running_stats = {}};
    signature.parameters.push_back({.name = "weight",
                                    .shape = {count, 1, 1, 1},
                                    .init = {Initializer::Kind::kConstant, 1, 0},
                                    .decays = false,
                                    .frozen = !config_.weight()});
    if (config_.bias()) {
      signature.parameters.push_back(
          {.name = "bias", .shape = {count}, .init = {}, .decays = false});
    }
    return signature;
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId x = emit.input();
    const ValueId channels = as_channels(emit, x);
    const ValueId y = emit.new_value(emit.spec(channels).shape);
    emit.emit(ops::Conv2dForward{geometry(emit)},
              {channels, emit.parameter(0), config_.bias() ? emit.parameter(1) : kNoValue, y});
    return in_shape_of(emit, x, y);
  }

  void backward(Emitter& emit, ValueId dy) const override {
    const ValueId x = emit.input();
    const ValueId gradient = as_channels(emit, dy);
    if (emit.trained()) {
      emit.emit(ops::Conv2dBackwardWeights{geometry(emit)},
                {as_channels(emit, x), gradient, emit.parameter_gradient(0),
                 config_.bias() ? emit.parameter_gradient(1) : kNoValue});
    }
    if (!emit.needs_gradient()) return;
    const ValueId dx = emit.new_value_like(gradient);
    emit.emit(ops::Conv2dBackwardData{geometry(emit)}, {gradient, emit.parameter(0), dx});
    emit.accumulate_gradient(0, emit.converted(in_shape_of(emit, x, dx), emit.spec(x)));
  }

 private:
  // Returns the number of numbers for samples of this shape.
  int64_t numbers(const Shape& sample) const {
    if (config_.per() == ScaleConfig::ALL) return 1;
    if (config_.per() == ScaleConfig::ELEMENT) return sample.elements();
    return sample[sample.rank() == 3 ? 0 : sample.rank() - 1];
  }
  static ops::Conv2dGeometry geometry(const Emitter& emit) {
    return {.groups = emit.spec(emit.parameter(0)).shape[0]};
  }
  bool is_image(const Shape& with_batch) const {
    return config_.per() == ScaleConfig::CHANNEL && with_batch.rank() == 4;
  }
  // Returns the value as images with one channel for each number.
  ValueId as_channels(Emitter& emit, ValueId value) const {
    const Shape shape = emit.spec(value).shape;
    if (is_image(shape)) return value;
    const int64_t count = emit.spec(emit.parameter(0)).shape[0];
    const int64_t rows =
        config_.per() == ScaleConfig::CHANNEL ? shape.elements() / count : shape[0];
    return emit.view(emit.row_major(value), {rows, count, shape.elements() / (rows * count), 1});
  }
  ValueId in_shape_of(Emitter& emit, ValueId like, ValueId channels) const {
    const Shape shape = emit.spec(like).shape;
    return is_image(shape) ? channels : emit.view(emit.row_major(channels), shape);
  }

  ScaleConfig config_;
};

}  // namespace

std::unique_ptr<Layer> make_scale(const LayerConfig& config) {
  return std::make_unique<ScaleLayer>(config.scale());
}

}  // namespace trireme::model
