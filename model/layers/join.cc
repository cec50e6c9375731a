// Layers that join branches: the sum of two inputs, and concatenation along the channels.
#include <fmt/format.h>

#include "model/layers/common.h"
#include "model/layers/layers.h"

namespace trireme::model {
namespace {

class Sum final : public Layer {
 public:
  std::string_view kind() const override { return "add"; }
  bool is_causal() const override { return true; }
  bool is_sum() const override { return true; }

  Signature infer(std::span<const Shape> inputs) const override {
    require_inputs(inputs, 2);
    if (!(inputs[0] == inputs[1])) {
      throw Error(fmt::format("requires inputs of the same shape, got {} and {}",
                              inputs[0].to_string(), inputs[1].to_string()));
    }
    return {.output = inputs[0], .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    const ValueId y = emit.new_value_like(emit.input(0));
    emit.emit(ops::Add{}, {emit.input(0), emit.input(1), y});
    return y;
  }

  void backward(Emitter& emit, ValueId dy) const override {
    emit.accumulate_gradient(0, dy);
    emit.accumulate_gradient(1, dy);
  }
};

class ConcatLayer final : public Layer {
 public:
  std::string_view kind() const override { return "concat"; }

  Signature infer(std::span<const Shape> inputs) const override {
    if (inputs.empty()) throw Error("requires at least one input, but has none");
    Shape output = inputs[0];
    for (size_t i = 1; i < inputs.size(); ++i) {
      Shape rest = inputs[i];
      rest[0] = inputs[0][0];
      if (!(rest == inputs[0])) {
        throw Error(
            fmt::format("requires inputs that differ only in the first dimension, got {} and {}",
                        inputs[0].to_string(), inputs[i].to_string()));
      }
      output[0] += inputs[i][0];
    }
    return {.output = output, .parameters = {}, .running_stats = {}};
  }

  ValueId forward(Emitter& emit) const override {
    std::vector<ValueId> args{emit.new_value(emit.output_shape())};
    for (int i = 0; i < emit.inputs(); ++i) args.push_back(emit.input(i));
    emit.emit(ops::Concat{emit.inputs()}, args);
    return args[0];
  }

  void backward(Emitter& emit, ValueId dy) const override {
    std::vector<ValueId> args{dy};
    for (int i = 0; i < emit.inputs(); ++i) args.push_back(emit.new_value_like(emit.input(i)));
    emit.emit(ops::Split{emit.inputs()}, args);
    for (int i = 0; i < emit.inputs(); ++i) {
      emit.accumulate_gradient(i, args[i + 1]);
    }
  }
};

}  // namespace

std::unique_ptr<Layer> make_add(const LayerConfig&) { return std::make_unique<Sum>(); }
std::unique_ptr<Layer> make_concat(const LayerConfig&) { return std::make_unique<ConcatLayer>(); }

}  // namespace trireme::model
