// Elementwise operators: normalization of the input, biases, scales, activations, sums.
#include <fmt/format.h>

#include <algorithm>

#include "model/onnx/importer.h"
#include "model/onnx/normalization.h"
#include "model/onnx/writer.h"

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

// Centering and scaling of the input, before any layer, by numbers that are not trained. They
// become part of the normalization of the data, which computes the same.
bool Importer::try_normalization(const NodeView& node) {
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const std::string& by = node.input(reversed ? 0 : 1);
  const auto* constant = std::get_if<TensorValue>(&value(by));
  if (!std::holds_alternative<InputValue>(value(of)) || !constant || readers_[of].count != 1 ||
      !normalizes(node, by, reversed)) {
    return false;
  }
  InputNormalization changed = imported_.normalization;
  const std::vector<float> values = per_channel_values(*constant->tensor, imported_.input.rank());
  if (!append_operator(changed, node.op(), values, reversed)) return false;
  imported_.normalization = std::move(changed);
  if (!constant->fixed) not_trained_.emplace_back(node.op(), by);
  set_output(node, InputValue{});
  return true;
}

// Returns whether the operator is part of a normalization, and not a scale or shift that the
// network learns: if its numbers are constants in any framework, or the operators are
// (x - mean) / std, possibly after a multiplication by one number, such as 1 / 255.
bool Importer::normalizes(const NodeView& node, const std::string& constant, bool reversed) const {
  const auto& number = std::get<TensorValue>(value(constant));
  if (number.fixed) return true;
  if (imported_.written_by_trireme) {
    constexpr const char* kOwn[] = {kNormalizeScale, kNormalizeMean, kNormalizeStddev};
    return std::ranges::any_of(
        kOwn, [&](const char* name) { return constant == fmt::format("{}.value", name); });
  }
  if (reversed && node.op() != "Mul") return false;
  const bool centered = !not_trained_.empty() && not_trained_.back().first == "Sub";
  if (node.op() == "Div" && centered) return true;
  if (not_trained_.size() > 1 || centered) return false;
  if (node.op() == "Sub") return true;
  if ((node.op() != "Mul" && node.op() != "Div") || !not_trained_.empty()) return false;
  const auto found = readers_.find(node.output());
  if (reader_.elements(*number.tensor) != 1 || found->second.count != 1 || found->second.last < 0) {
    return false;
  }
  const NodeProto& next = graph_.node(found->second.last);
  return next.op_type() == "Sub" && next.input_size() == 2 && next.input(0) == node.output() &&
         values_.contains(next.input(1)) && is_tensor(next.input(1));
}

// Multiplication of channels after a group norm that has no scale yet.
bool Importer::try_scale(const NodeView& node) {
  if (node.op() != "Mul") return false;
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const std::string& by = node.input(reversed ? 0 : 1);
  const auto* read = std::get_if<LayerValue>(&value(of));
  const auto* constant = std::get_if<TensorValue>(&value(by));
  if (!read || !constant || read->layer == LayerValue::kInput || readers_[of].count != 1) {
    return false;
  }
  const int index = read->layer;
  Layer& layer = layers_[index];
  if (!layer.config.has_group_norm() || layer.config.group_norm().affine() || !layer.shape) {
    return false;
  }
  const int64_t channels = (*layer.shape)[0];
  const std::vector<float> values = per_channel_values(*constant->tensor, layer.shape->rank());
  if (static_cast<int64_t>(values.size()) != channels) return false;
  layer.config.mutable_group_norm()->clear_affine();
  layer.node = node.place;
  layer.bias_may_follow = true;
  add_parameter(node, index, "weight", by, {channels});
  add_weight(index, "bias", {channels}, filled(channels, 0));
  set_output(node, LayerValue{index});
  return true;
}

// Addition to channels after a layer that has no bias yet, such as the Add after PyTorch's MatMul.
bool Importer::try_bias(const NodeView& node) {
  if (node.op() != "Add") return false;
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const std::string& by = node.input(reversed ? 0 : 1);
  const auto* read = std::get_if<LayerValue>(&value(of));
  const auto* constant = std::get_if<TensorValue>(&value(by));
  if (!read || !constant || read->layer == LayerValue::kInput || readers_[of].count != 1) {
    return false;
  }
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
  const std::vector<float> values = per_channel_values(*constant->tensor, rank);
  if (static_cast<int64_t>(values.size()) != channels) return false;
  if (config.has_dense()) config.mutable_dense()->clear_bias();
  if (config.has_conv2d()) config.mutable_conv2d()->clear_bias();
  if (layer.bias_may_follow) imported_.weights.erase(config.name() + ".bias");
  layer.bias_may_follow = false;
  layer.node = node.place;
  add_parameter(node, index, "bias", by, {channels});
  set_output(node, LayerValue{index});
  return true;
}

// Returns for which elements of the layer's output the constant has a number; nullopt if it is
// broadcast differently.
std::optional<ScaleConfig::Per> Importer::per_of(const TensorProto& tensor, int input) const {
  if (reader_.elements(tensor) == 1) return ScaleConfig::ALL;
  const std::optional<Shape> shape = shape_of(input);
  const bool reads_input = input == LayerValue::kInput;
  const int rank = shape ? shape->rank() : reads_input ? imported_.input.rank() : 0;
  std::vector<int64_t> dims(tensor.dims().begin(), tensor.dims().end());
  if (rank == 0 || std::ssize(dims) > rank + 1) return std::nullopt;
  dims.insert(dims.begin(), static_cast<size_t>(rank + 1) - dims.size(), 1);
  if (dims[0] != 1) return std::nullopt;
  dims.erase(dims.begin());
  const int channel = rank == 3 ? 0 : rank - 1;
  bool per_channel = !shape || dims[channel] == (*shape)[channel];
  for (int i = 0; i < rank; ++i) per_channel = per_channel && (i == channel || dims[i] == 1);
  if (per_channel) return ScaleConfig::CHANNEL;
  if (shape && rank != 2 && std::ranges::equal(dims, *shape)) return ScaleConfig::ELEMENT;
  return std::nullopt;
}

// Adds a scale layer for the multiplication or addition of a constant, or extends the layer that
// multiplied before. Returns the layer.
int Importer::add_scale(const NodeView& node) {
  const bool reversed = is_tensor(node.input(0));
  const std::string& of = node.input(reversed ? 1 : 0);
  const std::string& by = node.input(reversed ? 0 : 1);
  const auto constant = std::get<TensorValue>(value(by));
  const bool adds = node.op() == "Add" || (node.op() == "Sub" && !reversed);
  const bool divides = node.op() == "Div" && !reversed;
  if (!adds && !divides && node.op() != "Mul") {
    throw Unsupported{node.place, "is not part of a supported activation"};
  }
  if (divides && !constant.fixed) {
    throw Unsupported{node.place,
                      fmt::format("a division by numbers that are trained, '{}', is not supported; "
                                  "multiply by them, or write them as a Constant operator if they "
                                  "are not trained",
                                  by)};
  }
  const int input = layer_of(node, of);
  const auto per = per_of(*constant.tensor, input);
  if (!per) {
    throw Unsupported{node.place, fmt::format("'{}' must have one number, one for each channel, or "
                                              "one for each element of a sample",
                                              by)};
  }
  const auto extends = [&] {
    if (!adds || input == LayerValue::kInput || readers_[of].count != 1) return false;
    const Layer& before = layers_[input];
    return before.config.has_scale() && !before.config.scale().bias() &&
           before.config.scale().per() == *per &&
           graph_.node(static_cast<int>(before.node)).output(0) == of;
  };
  const char* name = adds ? "bias" : "weight";
  int layer = input;
  if (extends()) {
    layers_[layer].config.mutable_scale()->clear_bias();
    layers_[layer].node = node.place;
  } else {
    LayerConfig config;
    adds ? config.mutable_scale()->set_weight(false) : config.mutable_scale()->set_bias(false);
    if (*per != ScaleConfig::CHANNEL) config.mutable_scale()->set_per(*per);
    layer = add_layer(node, std::move(config), {input}, by);
  }
  add_scale_parameter(node, layer, name, constant, by);
  if (layer != input && input == LayerValue::kInput && !constant.fixed) {
    imported_.warnings.push_back(fmt::format(
        "{} and its '{}' read the input, and are trained as {}.{}, which model.freeze can prevent",
        describe(graph_.node(static_cast<int>(node.place))), by, layers_[layer].config.name(),
        name));
  }
  return layer;
}

// Sets a parameter of a scale layer to the numbers of a constant, and the weight of a layer that
// only adds to 1.
void Importer::add_scale_parameter(const NodeView& node, int layer, const char* name,
                                   const TensorValue& constant, const std::string& by) {
  const int64_t count = reader_.elements(*constant.tensor);
  const bool adds = std::string_view(name) == "bias";
  const Shape shape = adds ? Shape{count} : Shape{count, 1, 1, 1};
  if (!layers_[layer].config.scale().weight()) {
    add_weight(layer, "weight", {count, 1, 1, 1}, filled(count, 1));
  }
  const std::string form = node.op() == "Sub" || node.op() == "Div" ? node.op() : "";
  if (!constant.fixed && !own(node, layer, name, by, form)) return;
  std::vector<float> values = floats(node, by);
  for (float& number : values) {
    if (node.op() == "Sub") number = -number;
    if (node.op() == "Div") number = 1 / number;
  }
  add_weight(layer, name, shape, std::move(values));
  if (constant.fixed) freeze(layer, name);
}

std::optional<Importer::Function> Importer::as_function(const NodeView& node,
                                                        const std::string& name) {
  if (const auto* function = std::get_if<FunctionValue>(&value(name))) {
    const Function& known = functions_[function->function];
    // An activation that several operators read is the input of the next one.
    const bool complete = readers_[name].count > 1 && formula_that_computes(known.probe);
    if (known.depth < kMaxDepth && !complete) return known;
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
      if (!number) {
        set_output(node, LayerValue{add_scale(node)});
        return true;
      }
      probes.push_back(constant_probe(*number));
      result.fixed = result.fixed && std::get<TensorValue>(value(name)).fixed;
      continue;
    }
    const std::optional<Function> operand = as_function(node, name);
    if (source && *source != operand->source) return false;
    source = operand->source;
    probes.push_back(operand->probe);
    result.fixed = result.fixed && operand->fixed;
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
