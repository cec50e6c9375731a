// Elementwise operators: normalization of the input, biases, scales, activations, sums.
#include <algorithm>

#include "model/onnx/importer.h"
#include "model/onnx/normalization.h"

namespace trireme::model::onnx {
namespace {

// More than the depth of any activation's formula.
constexpr int kMaxDepth = 24;

}  // namespace

void Importer::elementwise(const NodeView& node) {
  const int operands = is_binary(node.op()) ? 2 : 1;
  for (int i = 0; i < operands; ++i) {
    if (std::holds_alternative<UnsupportedValue>(value(node.input(i))))
      throw DependsOnUnsupported();
  }
  if (operands == 2 && (try_normalization(node) || try_bias(node) || try_scale(node))) return;
  if (try_function(node)) return;
  if (node.op() != "Add") throw Unsupported{node.place, "only Add can combine two layers"};
  LayerConfig config;
  config.mutable_add();
  const int first = layer_of(node, node.input(0));
  const int second = layer_of(node, node.input(1));
  set_output(node, LayerValue{add_layer(node, std::move(config), {first, second})});
}

// Returns the values of a constant that is broadcast to samples of this rank and has one value, or
// one for each channel. Returns an empty list for other constants.
std::vector<float> Importer::per_channel_values(const TensorProto& tensor, int rank) const {
  std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
  if (reader_.elements(tensor) == 1) return reader_.floats(tensor);
  dims.insert(dims.begin(), std::max(0, rank + 1 - static_cast<int>(dims.size())), 1);
  if (static_cast<int>(dims.size()) != rank + 1) return {};
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 1 && dims[i] != 1) return {};
  }
  return reader_.elements(tensor) <= 1 << 20 ? reader_.floats(tensor) : std::vector<float>();
}

std::optional<float> Importer::scalar(const std::string& name) const {
  const auto* of = std::get_if<TensorValue>(&value(name));
  if (!of || reader_.elements(*of->tensor) != 1) return std::nullopt;
  return reader_.floats(*of->tensor)[0];
}

// Centering and scaling of the input, before any layer.
bool Importer::try_normalization(const NodeView& node) {
  const bool reversed = is_tensor(node.input(0));
  const auto* input = std::get_if<InputValue>(&value(node.input(reversed ? 1 : 0)));
  const auto* constant = std::get_if<TensorValue>(&value(node.input(reversed ? 0 : 1)));
  if (!input || !constant) return false;
  InputNormalization changed = input->normalization;
  const std::vector<float> values = per_channel_values(*constant->tensor, imported_.input.rank());
  if (!append_operator(changed, node.op(), values, reversed)) return false;
  set_output(node, InputValue{changed});
  return true;
}

// Multiplication of channels after a group norm that has no scale yet.
bool Importer::try_scale(const NodeView& node) {
  if (node.op() != "Mul") return false;
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const std::string& by = node.input(reversed ? 0 : 1);
  const auto* read = std::get_if<LayerValue>(&value(of));
  const auto* constant = std::get_if<TensorValue>(&value(by));
  if (!read || !constant || read->layer == LayerValue::kInput || readers_[of] != 1) return false;
  const int index = read->layer;
  Layer& layer = layers_[index];
  if (!layer.config.has_group_norm() || layer.config.group_norm().affine() || !layer.shape) {
    return false;
  }
  const int64_t channels = (*layer.shape)[0];
  std::vector<float> values = per_channel_values(*constant->tensor, layer.shape->rank());
  if (static_cast<int64_t>(values.size()) != channels) return false;
  layer.config.mutable_group_norm()->clear_affine();
  layer.node = node.place;
  layer.bias_may_follow = true;
  add_weight(index, "weight", {channels}, std::move(values));
  add_weight(index, "bias", {channels}, std::vector<float>(static_cast<size_t>(channels), 0.0F));
  set_output(node, LayerValue{index});
  return true;
}

// Addition to channels after a layer that has no bias yet, such as the Add after PyTorch's MatMul.
bool Importer::try_bias(const NodeView& node) {
  if (node.op() != "Add") return false;
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const auto* read = std::get_if<LayerValue>(&value(of));
  const auto* constant = std::get_if<TensorValue>(&value(node.input(reversed ? 0 : 1)));
  if (!read || !constant || read->layer == LayerValue::kInput || readers_[of] != 1) return false;
  const int index = read->layer;
  Layer& layer = layers_[index];
  if (graph_.node(static_cast<int>(layer.node)).output(0) != of) return false;  // has other names
  LayerConfig& config = layer.config;
  int64_t channels = 0;
  if (config.has_dense() && !config.dense().bias()) channels = config.dense().units();
  if (config.has_conv2d() && !config.conv2d().bias()) channels = config.conv2d().channels();
  if (layer.bias_may_follow) channels = (*layer.shape)[0];
  if (channels == 0) return false;
  const int rank = config.has_dense() ? 1 : layer.shape ? layer.shape->rank() : 3;
  std::vector<float> values = per_channel_values(*constant->tensor, rank);
  if (static_cast<int64_t>(values.size()) != channels) return false;
  if (config.has_dense()) config.mutable_dense()->clear_bias();
  if (config.has_conv2d()) config.mutable_conv2d()->clear_bias();
  layer.bias_may_follow = false;
  layer.node = node.place;
  add_weight(index, "bias", {channels}, std::move(values));
  set_output(node, LayerValue{index});
  return true;
}

std::optional<Importer::Function> Importer::as_function(const NodeView& node,
                                                        const std::string& name) {
  if (const auto* function = std::get_if<FunctionValue>(&value(name))) {
    const Function& known = functions_[function->function];
    if (known.depth < kMaxDepth) return known;
  }
  return Function{.node = node.place,
                  .source = layer_of(node, name),
                  .probe = probe_points(),
                  .depth = 0,
                  .inputs = {}};
}

// A function of the output of one layer: operands are functions of this output, or numbers.
bool Importer::try_function(const NodeView& node) {
  std::vector<Probe> probes;
  Function result{.node = node.place, .source = 0, .probe = {}, .depth = 0, .inputs = {}};
  std::optional<int> source;
  for (int i = 0; i < (is_binary(node.op()) ? 2 : 1); ++i) {
    const std::string& name = node.input(i);
    result.inputs.push_back(name);
    if (is_tensor(name)) {
      const std::optional<float> number = scalar(name);
      if (!number) throw Unsupported{node.place, "the constants must be scalars"};
      probes.push_back(constant_probe(*number));
      continue;
    }
    const std::optional<Function> operand = as_function(node, name);
    if (source && *source != operand->source) return false;
    source = operand->source;
    probes.push_back(operand->probe);
    result.depth = std::max(result.depth, operand->depth + 1);
  }
  if (!source) throw Unsupported{node.place, "all inputs are constants"};
  result.source = *source;
  result.probe = compute(node.op(), probes).value();
  functions_.push_back(result);
  set_output(node, FunctionValue{functions_.size() - 1});
  return true;
}

}  // namespace trireme::model::onnx
