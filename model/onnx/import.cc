#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "core/error.h"
#include "core/file_format.h"
#include "core/text.h"
#include "model/onnx/importer.h"
#include "model/onnx/normalization.h"
#include "model/onnx/writer.h"

namespace trireme::model::onnx {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLoss = "loss";
// The first opset in which operators broadcast and batch norm has its current form, and the last
// whose operators are known (ONNX 1.23).
constexpr int64_t kMinOpset = 7;
constexpr int64_t kMaxOpset = 28;
constexpr int kMaxOperators = 200000;  // ten for each layer of the largest network
// Memory that any file may use, however small, since several nodes may read the same tensor.
constexpr uint64_t kMinBytes = 64 << 20;
constexpr size_t kMaxMessage = 2000;  // bytes of an error that contains names of the file

// Returns whether the metadata declares pixels from 0 to 1. Keys and values are case-insensitive.
bool takes_unit_pixels(const ModelProto& model) {
  return std::ranges::any_of(model.metadata_props(), [](const StringStringEntryProto& entry) {
    return strcasecmp(entry.key().c_str(), "Image.NominalPixelRange") == 0 &&
           strcasecmp(entry.value().c_str(), "Normalized_0_1") == 0;
  });
}

ModelProto read_model(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw ConfigError(path.string(),
                      fs::exists(path, error) ? "is not a regular file" : "no such file");
  }
  if (fs::file_size(path) > std::numeric_limits<int32_t>::max()) {
    throw DataError(path.string(), "exceeds the 2 GiB limit of ONNX files");
  }
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    throw DataError(path.string(), std::string("cannot be read: ") + std::strerror(errno));
  }
  ModelProto model;
  google::protobuf::io::FileInputStream stream(file);
  stream.SetCloseOnDelete(true);
  if (!model.ParseFromZeroCopyStream(&stream)) {
    const std::string_view known = format_of_file(path);
    throw DataError(path.string(), known.empty()
                                       ? "is not an ONNX model, or is damaged"
                                       : fmt::format("is not an ONNX model, but {}", known));
  }
  return model;
}

// Returns the memory limit for the values of the model: a multiple of the size of its files, since
// f16 is converted to f32 and some tensors are read more than once.
uint64_t bytes_for_values(const ModelProto& model, const fs::path& path) {
  std::set<std::string> external;
  for (const TensorProto& tensor : model.graph().initializer()) {
    for (const StringStringEntryProto& entry : tensor.external_data()) {
      if (entry.key() == "location") external.insert(entry.value());
    }
  }
  uint64_t bytes = fs::file_size(path);
  for (const std::string& name : external) {
    std::error_code error;
    const uint64_t size = fs::file_size(path.parent_path() / name, error);
    if (!error) bytes += size;
  }
  return 4 * bytes + kMinBytes;
}

bool is_own_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

}  // namespace

Importer::Importer(const ModelProto& model, const fs::path& path)
    : model_(model),
      graph_(model.graph()),
      path_(path),
      reader_(path),
      bytes_left_(bytes_for_values(model, path)) {}

void Importer::throw_damaged(const std::string& why) const { throw DataError(path_.string(), why); }
void Importer::throw_config_error(const std::string& why) const {
  throw ConfigError(path_.string(), printable(why, kMaxMessage));
}

OnnxModel Importer::run() {
  if (graph_.node().empty()) throw_damaged("is not an ONNX model: it has no operators");
  if (graph_.node_size() > kMaxOperators) {
    throw_config_error(fmt::format("has {} operators; at most {} are supported", graph_.node_size(),
                                   kMaxOperators));
  }
  if (graph_.output_size() != 1) {
    throw_config_error(
        fmt::format("has {} outputs, but must have one, the logits", graph_.output_size()));
  }
  read_opset();
  check_names();
  find_needed();
  read_inputs();
  imported_.written_by_trireme = model_.producer_name() == kProducer;
  names_ = {"input", kLoss};
  for (size_t n = 0; n < static_cast<size_t>(graph_.node_size()); ++n) visit(n);
  return finish();
}

void Importer::read_opset() {
  for (const OperatorSetIdProto& set : model_.opset_import()) {
    if (!is_own_domain(set.domain())) continue;
    if (set.version() < kMinOpset) {
      throw_config_error(
          fmt::format("is of opset {}; export it with {} or newer", set.version(), kMinOpset));
    }
    if (set.version() > kMaxOpset) {
      throw_config_error(
          fmt::format("is of opset {}; export it with {} or older", set.version(), kMaxOpset));
    }
  }
}

// Throws DataError unless every value has one source.
void Importer::check_names() const {
  std::unordered_set<std::string_view> names;
  for (const TensorProto& tensor : graph_.initializer()) {
    if (!names.insert(tensor.name()).second) {
      throw_damaged(fmt::format("has two tensors that are named '{}'", printable(tensor.name())));
    }
  }
  for (const ValueInfoProto& input : graph_.input()) names.insert(input.name());
  for (const NodeProto& node : graph_.node()) {
    for (const std::string& output : node.output()) {
      if (!output.empty() && !names.insert(output).second) {
        throw_damaged(fmt::format("'{}' is computed twice", printable(output)));
      }
    }
  }
}

// Counts the readers of each name among the nodes that the output depends on. Nodes are in
// topological order.
void Importer::find_needed() {
  readers_[graph_.output(0).name()] = {.count = 1};
  for (int n = graph_.node_size() - 1; n >= 0; --n) {
    const NodeProto& node = graph_.node(n);
    const bool needed =
        std::any_of(node.output().begin(), node.output().end(),
                    [&](const std::string& name) { return readers_.contains(name); });
    if (!needed) continue;
    for (const std::string& name : node.input()) {
      if (name.empty()) continue;
      Readers& readers = readers_[name];
      if (node.op_type() == "Shape") continue;
      ++readers.count;
      readers.last = n;
    }
  }
}

void Importer::read_inputs() {
  for (const TensorProto& tensor : graph_.initializer()) {
    values_.emplace(tensor.name(), TensorValue{&tensor, tensor.name()});
  }
  std::vector<std::string> inputs;
  for (const ValueInfoProto& input : graph_.input()) {
    if (values_.contains(input.name()) || !readers_.contains(input.name())) continue;
    inputs.push_back(input.name());
    if (inputs.size() == 1) read_input(input);
  }
  if (inputs.empty()) {
    throw_config_error(
        fmt::format("has an output, '{}', that does not depend on an input; either an operator "
                    "reads a name that nothing has, or one precedes the operators it depends on",
                    graph_.output(0).name()));
  }
  if (inputs.size() > 1) {
    throw_config_error(fmt::format("has {} inputs: {}, but must have one, the samples",
                                   inputs.size(), fmt::join(inputs, ", ")));
  }
  find_sequences(inputs[0]);
}

void Importer::read_input(const ValueInfoProto& input) {
  const TensorShapeProto& shape = input.type().tensor_type().shape();
  if (shape.dim_size() != 2 && shape.dim_size() != 4) {
    throw_config_error(
        fmt::format("the input '{}' has {} dimensions, but must be [N, C, H, W] or [N, F]",
                    input.name(), shape.dim_size()));
  }
  std::vector<int64_t> sample;
  for (const TensorShapeProto::Dimension& dimension : shape.dim()) {
    sample.push_back(std::max<int64_t>(0, dimension.dim_value()));
  }
  if (sample[0] > 0) batch_ = sample[0];
  sample.erase(sample.begin());
  imported_.input = Shape(sample);
  reads_tokens_ = input.type().tensor_type().elem_type() == TensorProto::INT64;
  if (reads_tokens_ && imported_.input.rank() != 1) {
    throw_config_error(fmt::format("the input '{}' has {} dimensions, but tokens must be [N, T]",
                                   input.name(), shape.dim_size()));
  }
  values_[input.name()] = InputValue{};
}

void Importer::find_sequences(const std::string& input) {
  const bool dynamic = reads_tokens_ && imported_.input[0] == 0;
  sequence_layers_ = find_sequence_layers(GraphIndex(graph_, reader_), input, dynamic);
  for (const auto& [root, layer] : sequence_layers_) {
    inner_nodes_.insert(layer.nodes.begin(), layer.nodes.end());
    if (dynamic && layer.length) imported_.input[0] = *layer.length;
  }
  for (const auto& [root, layer] : sequence_layers_) inner_nodes_.erase(root);
  if (!reads_tokens_) return;
  length_ = std::max<int64_t>(1, imported_.input[0]);
  for (const auto& [root, layer] : sequence_layers_) {
    if (dynamic) length_ = std::max(length_, layer.config.token_pool().skip() + 1);
  }
}

void Importer::visit(size_t n) {
  const NodeProto& proto = graph_.node(static_cast<int>(n));
  const NodeView node(proto, n);
  const bool needed = std::any_of(proto.output().begin(), proto.output().end(),
                                  [&](const std::string& name) { return readers_.contains(name); });
  if (!needed) return;
  if (inner_nodes_.contains(static_cast<int>(n))) {
    for (const std::string& output : proto.output()) values_.emplace(output, InnerValue());
    return;
  }
  try {
    if (const auto found = sequence_layers_.find(static_cast<int>(n));
        found != sequence_layers_.end()) {
      return add_sequence_layer(node, found->second);
    }
    const Handler read = handler(node.op());
    if (!read || !is_own_domain(proto.domain())) throw Unsupported{n, ""};
    for (int i = 1; i < proto.output_size(); ++i) {
      if (readers_.contains(proto.output(i))) {
        throw Unsupported{n, fmt::format("the output '{}' is not supported", proto.output(i))};
      }
    }
    (this->*read)(node);
    return;
  } catch (const Unsupported& unsupported) {
    report_unsupported(unsupported);
  } catch (const DependsOnUnsupported&) {
    // The unsupported operator has been reported.
  }
  for (const std::string& output : proto.output())
    values_.insert_or_assign(output, UnsupportedValue());
}

void Importer::report_unsupported(const Unsupported& unsupported) {
  if (!reported_.insert(unsupported.node).second) return;
  std::string text = describe(graph_.node(static_cast<int>(unsupported.node)));
  if (!unsupported.why.empty()) text += ": " + unsupported.why;
  unsupported_.push_back(std::move(text));
}

// Returns the layer that computes the logits, [N, classes], or [N, T, classes] from tokens.
int Importer::result() {
  const NodeView last(graph_.node(graph_.node_size() - 1),
                      static_cast<size_t>(graph_.node_size()) - 1);
  const int layer = layer_of(last, graph_.output(0).name());
  const std::optional<Shape> shape = shape_of(layer);
  if (!shape || shape->rank() == 1 || (reads_tokens_ && shape->rank() == 2)) return layer;
  if (shape->elements() != (*shape)[0]) {
    throw_config_error(
        fmt::format("has an output of shape {} for each sample, but must have one "
                    "number for each class",
                    shape->to_string()));
  }
  LayerConfig config;
  config.mutable_flatten();
  return add_layer(last, std::move(config), {layer});
}

OnnxModel Importer::finish() {
  int logits = LayerValue::kInput;
  try {
    logits = result();
  } catch (const Unsupported& unsupported) {
    report_unsupported(unsupported);
  } catch (const DependsOnUnsupported&) {
    // The unsupported operator has been reported.
  }
  if (!unsupported_.empty()) {
    throw_config_error(
        fmt::format("has operators that cannot be imported: {}", fmt::join(unsupported_, "; ")));
  }
  if (const std::optional<Shape> shape = shape_of(logits)) {
    imported_.outputs = (*shape)[shape->rank() - 1];
    imported_.label_per_token = reads_tokens_ && shape->rank() == 2;
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    // Added in case that an operator adds to the channels, which none did.
    if (layers_[i].bias_may_follow) freeze(static_cast<int>(i), "bias");
  }
  if (!not_trained_.empty() && !imported_.written_by_trireme) {
    std::vector<std::string> names;
    for (const auto& [op, constant] : not_trained_) names.push_back("'" + constant + "'");
    imported_.warnings.push_back(
        fmt::format("the input is normalized by {}, which become part of data.normalize and are "
                    "not trained",
                    fmt::join(names, ", ")));
  }
  LayerConfig loss;
  loss.set_name(kLoss);
  loss.mutable_softmax_cross_entropy();
  layers_.push_back({.config = std::move(loss),
                     .node = static_cast<size_t>(graph_.node_size()),
                     .inputs = {logits},
                     .shape = {}});
  const std::string& name = graph_.name();
  const bool generic = name.empty() || name == "main_graph" || name.starts_with("torch");
  imported_.network.set_name(printable(generic ? path_.stem().string() : name));
  write_layers(imported_.network);
  return std::move(imported_);
}

// Writes layers in the order of the file. Activations have been added later, by their readers.
void Importer::write_layers(NetworkConfig& network) const {
  std::vector<size_t> order(layers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return layers_[a].first < layers_[b].first; });
  int before = LayerValue::kInput;
  for (const size_t place : order) {
    const Layer& layer = layers_[place];
    LayerConfig& config = *network.add_layer();
    config = layer.config;
    // Inputs are omitted if the layer reads the previous one.
    if (layer.inputs != std::vector<int>{before}) {
      for (const int input : layer.inputs) {
        config.add_input(input == LayerValue::kInput ? "input" : layers_[input].config.name());
      }
    }
    before = static_cast<int>(place);
  }
}

}  // namespace trireme::model::onnx

namespace trireme::model {

OnnxModel read_onnx(const std::filesystem::path& path) {
  const onnx::ModelProto model = onnx::read_model(path);
  OnnxModel found = onnx::make_importer(model, path)->run();
  if (onnx::takes_unit_pixels(model)) found.normalization.scale /= 255;
  for (const auto& entry : model.metadata_props()) found.metadata[entry.key()] = entry.value();
  return found;
}

}  // namespace trireme::model
