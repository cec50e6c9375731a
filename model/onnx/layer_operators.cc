// ONNX operators that are matrix products, norms, activations or dropout.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/onnx/operators.h"

namespace trireme::model::onnx {

void Operators::gemm(const NodeView& node) {
  if (node.integer("transA", 0) != 0) throw Unsupported{node.place, "transA is not supported"};
  // Factors in the parameters would change their gradients.
  if (node.number("alpha", 1) != 1 || (node.has_input(2) && node.number("beta", 1) != 1)) {
    throw Unsupported{node.place, "alpha and beta must be 1"};
  }
  dense(node, node.integer("transB", 0) != 0);
}

void Operators::mat_mul(const NodeView& node) { dense(node, /*transposed=*/false); }

// Adds a dense layer. `transposed`: the weight is [units, inputs], as in Trireme, not
// [inputs, units].
void Operators::dense(const NodeView& node, bool transposed) {
  const int input = layer_of(node, node.input(0));
  std::string table = node.input(1);
  if (const auto* of = std::get_if<TransposedValue>(&value(table))) {
    table = of->name;
    transposed = !transposed;
  }
  const std::vector<int64_t> dims = extents(node, table);
  if (dims.size() != 2) throw Unsupported{node.place, "the weight must have two dimensions"};
  const int64_t units = dims[transposed ? 0 : 1];
  const int64_t inputs = dims[transposed ? 1 : 0];
  const std::optional<Shape> shape = shape_of(input);
  if (shape && shape->rank() > 2) {
    throw Unsupported{node.place, "the input must be [N, F] or [N, T, F]"};
  }
  if (shape && (*shape)[shape->rank() - 1] != inputs) {
    throw_damaged(fmt::format("the weight of '{}' does not fit its input {}", node.name(),
                              shape->to_string()));
  }
  LayerConfig config;
  config.mutable_dense()->set_units(units);
  if (!node.has_input(2)) config.mutable_dense()->set_bias(false);
  const int layer = add_layer(node, std::move(config), {input}, table);
  if (own(node, layer, "weight", table, transposed ? "" : "transposed")) {
    const std::vector<float> stored = floats(node, table);
    std::vector<float> weight(stored.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      const size_t unit = i / inputs;
      const size_t feature = i % inputs;
      weight[i] = stored[transposed ? i : feature * units + unit];
    }
    add_weight(layer, "weight", {units, inputs}, std::move(weight));
  }
  if (node.has_input(2)) {
    if (units > 1 && reader_.elements(tensor(node, node.input(2))) == 1) {
      throw Unsupported{node.place, "one number as the bias of several outputs is not supported"};
    }
    add_parameter(node, layer, "bias", node.input(2), {units});
  }
  set_output(node, LayerValue{layer});
}

// Adds the inputs 1 and 2 as the weight and the bias of a norm.
void Operators::add_norm_parameters(const NodeView& node, int layer, const Shape& channels) {
  add_parameter(node, layer, "weight", node.input(1), channels);
  add_parameter(node, layer, "bias", node.input(2), channels);
}

void Operators::batch_norm(const NodeView& node) {
  if (node.integer("training_mode", 0) != 0) {
    throw Unsupported{node.place, "training_mode is not supported"};
  }
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  BatchNormConfig& norm = *config.mutable_batch_norm();
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  // ONNX's momentum is the weight of the old value, Trireme's that of the new one. Rounding removes
  // the f32 error of 1 - 0.9.
  const double momentum = std::round((1 - double{node.number("momentum", 0.9F)}) * 1e6) / 1e6;
  if (static_cast<float>(momentum) != norm.momentum()) {
    norm.set_momentum(static_cast<float>(momentum));
  }
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));
  const std::optional<Shape> shape = shape_of(input);
  const Shape channels{shape ? (*shape)[0] : reader_.elements(tensor(node, node.input(1)))};
  add_norm_parameters(node, layer, channels);
  // Statistics are no parameters: each layer measures its own.
  add_weight(layer, "running_mean", channels, floats(node, node.input(3)));
  add_weight(layer, "running_var", channels, floats(node, node.input(4)));
  set_output(node, LayerValue{layer});
}

int Operators::add_group_norm(const NodeView& node, int input, int64_t groups) {
  LayerConfig config;
  GroupNormConfig& norm = *config.mutable_group_norm();
  norm.set_num_groups(groups);
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  return add_layer(node, std::move(config), {input}, node.input(1));
}

void Operators::group_norm(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  const int64_t groups = node.integer("num_groups", 0);
  const int layer = add_group_norm(node, input, groups);
  const std::optional<Shape> shape = shape_of(input);
  // Opset 18 has one number for each group, later opsets have one for each channel.
  const int64_t count = reader_.elements(tensor(node, node.input(1)));
  if (shape && count == groups && count < (*shape)[0]) {
    throw Unsupported{node.place, "a scale for each group of channels is not supported"};
  }
  add_norm_parameters(node, layer, Shape{shape ? (*shape)[0] : count});
  set_output(node, LayerValue{layer});
}

// Instance norm of channels, or group norm as exported before opset 21: instance norm of groups of
// channels, followed by separate operators for scale and shift of the channels.
void Operators::instance_norm(const NodeView& node) {
  if (const auto* of = std::get_if<GroupedValue>(&value(node.input(0)))) {
    const GroupedValue groups = *of;
    if (std::ranges::any_of(floats(node, node.input(1)), [](float w) { return w != 1; }) ||
        std::ranges::any_of(floats(node, node.input(2)), [](float b) { return b != 0; })) {
      throw Unsupported{node.place,
                        "a scale or a shift for each group of channels is not supported"};
    }
    const int layer = add_group_norm(node, groups.layer, groups.groups);
    layers_[layer].config.mutable_group_norm()->set_affine(false);
    return set_output(node, GroupedValue{layer, groups.groups});
  }
  const int64_t channels = reader_.elements(tensor(node, node.input(1)));
  const int layer = add_group_norm(node, layer_of(node, node.input(0)), channels);
  add_norm_parameters(node, layer, {channels});
  set_output(node, LayerValue{layer});
}

void Operators::layer_norm(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  const std::optional<Shape> shape = shape_of(input);
  const int64_t last = shape ? shape->rank() : 1;
  if (!is_one_of(node.integer("axis", -1), {-1, last}) || last > 2) {
    throw Unsupported{node.place, "only the last axis of [N, F] or [N, T, F] is supported"};
  }
  LayerConfig config;
  LayerNormConfig& norm = *config.mutable_layer_norm();
  const float epsilon = node.number("epsilon", 1e-5F);
  if (epsilon != norm.epsilon()) norm.set_epsilon(epsilon);
  const int layer = add_layer(node, std::move(config), {input}, node.input(1));
  const int64_t count = reader_.elements(tensor(node, node.input(1)));
  const Shape features{shape ? (*shape)[shape->rank() - 1] : count};
  if (node.has_input(2)) {
    add_norm_parameters(node, layer, features);
  } else {
    add_parameter(node, layer, "weight", node.input(1), features);
    add_weight(layer, "bias", features, filled(count, 0));
    freeze(layer, "bias");
  }
  set_output(node, LayerValue{layer});
}

void Operators::activation(const NodeView& node) {
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  if (node.op() == "Swish") {
    if (node.number("alpha", 1) != 1) throw Unsupported{node.place, "alpha is not supported"};
    config.mutable_silu();
  } else if (node.text("approximate") == "tanh") {
    config.mutable_gelu_tanh();
  } else {
    config.mutable_gelu();
  }
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

void Operators::dropout(const NodeView& node) {
  float rate = node.number("ratio", 0.5F);
  if (node.has_input(1)) rate = scalar(node.input(1)).value_or(-1);
  if (!(rate >= 0 && rate < 1)) {
    throw Unsupported{node.place, "the ratio must be a constant in [0, 1)"};
  }
  if (rate == 0) return identity(node);
  const int input = layer_of(node, node.input(0));
  LayerConfig config;
  config.mutable_dropout()->set_rate(rate);
  set_output(node, LayerValue{add_layer(node, std::move(config), {input})});
}

// A softmax at the end of the model is omitted, since the loss includes it.
void Operators::softmax(const NodeView& node) {
  if (node.output() != graph_.output(0).name()) {
    throw Unsupported{node.place, "only supported as the last operator"};
  }
  const int input = layer_of(node, node.input(0));
  const std::optional<Shape> shape = shape_of(input);
  const int64_t last = shape ? shape->rank() : 1;
  if (!is_one_of(node.integer("axis", -1), {-1, last}) || last > (reads_tokens_ ? 2 : 1)) {
    throw Unsupported{node.place, "only the last axis of logits is supported"};
  }
  set_output(node, LayerValue{input});
}

}  // namespace trireme::model::onnx
