// The values of names in the graph, and the layers that compute them.
#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"
#include "model/onnx/importer.h"

namespace trireme::model::onnx {
namespace {

// Limits larger than any network needs, and small enough that arithmetic on shapes cannot overflow.
constexpr int64_t kMaxExtent = 1 << 20;
constexpr int64_t kMaxElements = int64_t{1} << 40;

bool plausible(const Shape& shape) {
  if (shape.rank() == 1) return shape[0] >= 1 && shape[0] <= kMaxElements;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMaxExtent) return false;
  }
  return shape.elements() <= kMaxElements;
}

}  // namespace

const Value& Importer::value(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw_damaged(fmt::format("'{}' is read before it is computed", name));
  return found->second;
}

void Importer::set_output(const NodeView& node, Value value) {
  if (!values_.emplace(node.output(), std::move(value)).second) {
    throw_damaged(fmt::format("'{}' is computed twice", node.output()));
  }
}

bool Importer::is_tensor(const std::string& name) const {
  return std::holds_alternative<TensorValue>(value(name));
}

int Importer::layer_of(const NodeView& node, const std::string& name) {
  const Value& of = value(name);
  if (std::holds_alternative<UnsupportedValue>(of)) throw DependsOnUnsupported();
  if (const auto* layer = std::get_if<LayerValue>(&of)) return layer->layer;
  if (const auto* function = std::get_if<FunctionValue>(&of)) return layer_of(function->function);
  if (std::holds_alternative<GroupedValue>(of)) {
    throw Unsupported{node.place, "cannot read channels in groups"};
  }
  if (std::holds_alternative<InnerValue>(of)) {
    throw Unsupported{node.place, fmt::format("the input '{}' is computed within a layer", name)};
  }
  if (!std::holds_alternative<InputValue>(of)) {
    throw Unsupported{node.place, fmt::format("the input '{}' is a constant", name)};
  }
  return LayerValue::kInput;
}

int Importer::layer_of(size_t index) {
  const Function function = functions_[index];
  if (function.layer) return *function.layer;
  const NodeView node(graph_.node(static_cast<int>(function.node)), function.node);
  int layer = function.source;
  if (function.fixed && is_identity(function.probe)) {
    // Nothing to add.
  } else if (const ActivationFormula* formula = formula_that_computes(function.probe)) {
    LayerConfig config;
    formula->set(config);
    layer = add_layer(node, std::move(config), {function.source});
  } else if (node.op() == "Add" && !is_tensor(function.inputs[0]) &&
             !is_tensor(function.inputs[1])) {
    LayerConfig config;
    config.mutable_add();
    const int first = layer_of(node, function.inputs[0]);
    layer = add_layer(node, std::move(config), {first, layer_of(node, function.inputs[1])});
  } else if (function.inputs.size() == 1) {
    const auto alone = compute(node.op(), std::span(&probe_points(), 1));
    const ActivationFormula* last = formula_that_computes(*alone);
    if (!last) throw Unsupported{function.node, "is not part of a supported activation"};
    LayerConfig config;
    last->set(config);
    layer = add_layer(node, std::move(config), {layer_of(node, function.inputs[0])});
  } else if (is_tensor(function.inputs[0]) || is_tensor(function.inputs[1])) {
    layer = add_scale(node);
  } else {
    throw Unsupported{function.node, "is not part of a supported activation"};
  }
  functions_[index].layer = layer;
  return layer;
}

std::optional<Shape> Importer::shape_of(int layer) const {
  if (layer != LayerValue::kInput) return layers_[layer].shape;
  if (reads_tokens_) return Shape{length_};
  if (!plausible(imported_.input)) return std::nullopt;  // the file leaves dimensions open
  return imported_.input;
}

const TensorProto& Importer::store_constant(TensorProto tensor) {
  return constants_.emplace_back(std::move(tensor));
}

const TensorProto& Importer::tensor(const NodeView& node, const std::string& name) const {
  const Value& of = value(name);
  if (std::holds_alternative<UnsupportedValue>(of)) throw DependsOnUnsupported();
  const auto* found = std::get_if<TensorValue>(&of);
  if (!found) {
    throw Unsupported{node.place, fmt::format("the input '{}' must be a constant", name)};
  }
  return *found->tensor;
}

uint64_t Importer::check_size(int64_t elements) const {
  const auto count = static_cast<uint64_t>(elements);
  if (count > bytes_left_ / sizeof(float)) {
    throw_damaged("the tensors need more values than the file contains");
  }
  return count * sizeof(float);
}

std::vector<float> Importer::floats(const NodeView& node, const std::string& name) {
  const TensorProto& found = tensor(node, name);
  bytes_left_ -= check_size(reader_.elements(found));
  return reader_.floats(found);
}

std::vector<float> Importer::filled(int64_t elements, float value) {
  bytes_left_ -= check_size(elements);
  return std::vector<float>(static_cast<size_t>(elements), value);
}

std::vector<int64_t> Importer::integers(const NodeView& node, const std::string& name) const {
  const Value& of = value(name);
  if (const auto* known = std::get_if<IntegersValue>(&of)) return known->values;
  const TensorProto& found = tensor(node, name);
  const int32_t type = found.data_type();
  if (type != TensorProto::INT64 && type != TensorProto::INT32) {
    throw Unsupported{node.place, fmt::format("the input '{}' must be integers", name)};
  }
  if (reader_.elements(found) > Shape::kMaxRank) {
    throw Unsupported{node.place,
                      fmt::format("the input '{}' has more numbers than a shape", name)};
  }
  return reader_.integers(found);
}

std::vector<int64_t> Importer::extents(const NodeView& node, const std::string& name) const {
  const TensorProto& found = tensor(node, name);
  for (const int64_t extent : found.dims()) {
    if (extent < 1) throw_damaged(fmt::format("tensor '{}' has a dimension of {}", name, extent));
  }
  check_size(reader_.elements(found));
  return {found.dims().begin(), found.dims().end()};
}

int Importer::add_layer(const NodeView& node, LayerConfig config, std::vector<int> inputs,
                        const std::string& weight) {
  Layer layer{
      .config = std::move(config), .node = node.place, .inputs = std::move(inputs), .shape = {}};
  infer(node, layer);
  layer.config.set_name(name_for(node, make_layer(layer.config)->kind(), weight));
  layers_.push_back(std::move(layer));
  return static_cast<int>(layers_.size()) - 1;
}

void Importer::infer(const NodeView& node, Layer& layer) {
  std::vector<Shape> shapes;
  for (const int input : layer.inputs) {
    const std::optional<Shape> shape = shape_of(input);
    if (!shape) return;
    shapes.push_back(*shape);
  }
  try {
    layer.shape = make_layer(layer.config)->infer(shapes).output;
  } catch (const Error& error) {
    throw Unsupported{node.place, error.what()};
  }
  if (!plausible(*layer.shape)) {
    throw Unsupported{node.place,
                      fmt::format("its output {} is not supported", layer.shape->to_string())};
  }
}

// Layers with parameters are named after these, "layer1.0.conv1.weight", if the exporter has
// preserved their names. Other layers, and those that share a weight, are named after their nodes.
std::string Importer::name_for(const NodeView& node, std::string_view kind,
                               const std::string& weight) {
  constexpr std::string_view kSuffix = ".weight";
  std::string name;
  const bool own = !owners_.contains(weight);
  if (own && weight.size() > kSuffix.size() && weight.ends_with(kSuffix)) {
    name = weight.substr(0, weight.size() - kSuffix.size());
  } else {
    name = name_of_node(node);
    // PyTorch's functional calls have only the name of the enclosing module.
    if (node.name().starts_with('/') && (kind == "add" || kind == "concat" || kind == "flatten")) {
      name += (name.empty() ? "" : ".") + std::string(kind);
    }
  }
  name = name.empty() ? fmt::format("{}_{}", kind, layers_.size()) : printable(name);
  std::string unique = name;
  int& last = suffixes_.try_emplace(name, 1).first->second;
  while (!names_.insert(unique).second) unique = fmt::format("{}_{}", name, ++last);
  return unique;
}

void Importer::add_weight(int layer, const char* name, const Shape& shape,
                          std::vector<float> values) {
  const std::string full = layers_[layer].config.name() + "." + name;
  if (shape.elements() != static_cast<int64_t>(values.size())) {
    throw_damaged(fmt::format("'{}' should be {}, but has {} values", full, shape.to_string(),
                              values.size()));
  }
  imported_.weights[full] = {shape, std::move(values)};
}

void Importer::freeze(int layer, const char* name) {
  imported_.frozen.push_back(layers_[layer].config.name() + "." + name);
}

void Importer::add_parameter(const NodeView& node, int layer, const std::string& name,
                             const std::string& constant, const Shape& shape,
                             const std::string& form) {
  if (own(node, layer, name, constant, form)) {
    add_weight(layer, name.c_str(), shape, floats(node, constant));
  }
}

bool Importer::own(const NodeView& node, int layer, const std::string& name,
                   const std::string& constant, const std::string& form) {
  tensor(node, constant);  // which it must be
  const auto [found, is_new] =
      owners_.try_emplace(std::get<TensorValue>(value(constant)).name, Owner{layer, name, form});
  if (is_new) return true;
  const Owner& owner = found->second;
  const LayerConfig& first = layers_[owner.layer].config;
  LayerConfig& config = layers_[layer].config;
  const bool same = owner.parameter == name && owner.form == form &&
                    layers_[owner.layer].first < layers_[layer].first;
  if (same && name == "weight" && first.has_embedding() && config.has_dense()) {
    config.mutable_dense()->set_tied_to(first.name());
  } else if (same && name == "weight" && first.kind_case() == config.kind_case()) {
    config.mutable_shared()->set_weight(first.name());
  } else if (same && name == "bias" && first.kind_case() == config.kind_case()) {
    config.mutable_shared()->set_bias(first.name());
  } else {
    throw Unsupported{node.place,
                      fmt::format("its {}, '{}', is also the {} of layer '{}'{}, and these cannot "
                                  "be one parameter",
                                  name, constant, owner.parameter, first.name(),
                                  owner.form == form ? "" : " in another form")};
  }
  return false;
}

}  // namespace trireme::model::onnx
