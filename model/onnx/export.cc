// Exports a network as an ONNX model: one operator for each layer, except for activations and norms
// that need several.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/version.h"
#include "model/layers/common.h"
#include "model/onnx/activations.h"
#include "model/onnx/normalization.h"
#include "model/onnx/onnx.h"
#include "model/onnx/onnx.pb.h"
#include "model/onnx/sequences.h"
#include "model/onnx/writer.h"

namespace trireme::model {
namespace {

using namespace onnx;

// The lowest opset with all operators that are used (the newest is LayerNormalization), so that
// most programs can read the file.
constexpr int64_t kOpset = 17;
constexpr int64_t kIrVersion = 8;
constexpr const char* kInput = "input";
// An upper bound for the size of names and nodes.
constexpr uint64_t kMetadataBytes = 1 << 24;

using Pair = std::array<int64_t, 2>;

void set_attribute(NodeProto& node, const char* name, const Pair& sides) {
  set_attribute(node, name, std::vector<int64_t>{sides[0], sides[1]});
}
void set_padding(NodeProto& node, const Pair& padding) {
  set_attribute(node, "pads", std::vector<int64_t>{padding[0], padding[1], padding[0], padding[1]});
}

// If `dynamic` is set, the first dimension is the number of tokens.
void describe(ValueInfoProto& value, const std::string& name, DType dtype, const Shape& sample,
              bool dynamic) {
  value.set_name(name);
  TypeProto::Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(dtype == DType::kI32 ? TensorProto::INT64 : TensorProto::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("N");
  for (const int64_t extent : sample) {
    TensorShapeProto::Dimension& dimension = *type.mutable_shape()->add_dim();
    dynamic ? dimension.set_dim_param("T") : dimension.set_dim_value(extent);
    dynamic = false;
  }
}

// Returns whether shorter sequences than the samples can pass the network: whether its input is
// tokens, and no layer reads or writes a fixed number of them.
bool has_dynamic_length(const NetworkConfig& network, const ModelInput& input) {
  constexpr LayerConfig::KindCase kFixed[] = {
      LayerConfig::kConcat,  LayerConfig::kFlatten,    LayerConfig::kClassToken,
      LayerConfig::kConv2D,  LayerConfig::kGroupNorm,  LayerConfig::kBatchNorm,
      LayerConfig::kMaxPool, LayerConfig::kGlobalPool, LayerConfig::kAveragePool};
  return input.input.dtype == DType::kI32 &&
         std::ranges::none_of(network.layer(), [&](const LayerConfig& layer) {
           return std::ranges::find(kFixed, layer.kind_case()) != std::end(kFixed);
         });
}

// Writes layers. Functions that return a string return the name of a layer's output.
class LayerWriter {
 public:
  LayerWriter(ModelWriter& out, const Weights& weights, bool dynamic_length)
      : out_(out), weights_(weights), sequences_(out, weights, kInput, dynamic_length) {}

  // `inputs` are the names of the layer's inputs.
  std::string write(const LayerConfig& config, const Node& node,
                    const std::vector<std::string>& inputs) {
    const std::string& x = inputs[0];
    if (const ActivationFormula* formula = formula_of(config)) return write(*formula, node, x);
    switch (config.kind_case()) {
      case LayerConfig::kEmbedding:
        return sequences_.embedding(config.embedding(), node);
      case LayerConfig::kAttention:
        return sequences_.attention(config.attention(), node, x);
      case LayerConfig::kRmsNorm:
        return sequences_.rms_norm(config.rms_norm(), node, x);
      case LayerConfig::kSwiglu:
        return sequences_.swiglu(node, x);
      case LayerConfig::kToSequence:
        return sequences_.to_sequence(node, x);
      case LayerConfig::kClassToken:
        return sequences_.class_token(config.class_token(), node, x);
      case LayerConfig::kTokenPool:
        return sequences_.token_pool(config.token_pool(), node, x);
      case LayerConfig::kLstm:
        return sequences_.recurrent(config.lstm(), /*lstm=*/true, node, x);
      case LayerConfig::kGru:
        return sequences_.recurrent(config.gru(), /*lstm=*/false, node, x);
      case LayerConfig::kDense:
        return dense(config.dense(), node, x);
      case LayerConfig::kConv2D:
        return conv2d(config.conv2d(), node, x);
      case LayerConfig::kBatchNorm:
        return batch_norm(config.batch_norm(), node, x);
      case LayerConfig::kGroupNorm:
        return group_norm(config.group_norm(), node, x);
      case LayerConfig::kLayerNorm:
        return layer_norm(config.layer_norm(), node, x);
      case LayerConfig::kScale:
        return scale(config.scale(), node, x);
      case LayerConfig::kMaxPool:
        return pool("MaxPool", config.max_pool(), node.name, x).output(0);
      case LayerConfig::kAveragePool:
        return average_pool(config.average_pool(), node.name, x);
      case LayerConfig::kGlobalPool:
        return out_.result("GlobalAveragePool", node.name, {x});
      case LayerConfig::kDropout:  // nothing in inference
        return x;
      case LayerConfig::kAdd:
        return out_.result("Add", node.name, inputs);
      case LayerConfig::kConcat:
        return with_axis(out_.add("Concat", node.name, inputs), 1);
      case LayerConfig::kFlatten:
        return with_axis(out_.add("Flatten", node.name, {x}), 1);
      default:
        throw ConfigError("model", fmt::format("layer '{}' ({}) cannot be exported to ONNX",
                                               node.name, node.layer->kind()));
    }
  }

 private:
  static std::string with_axis(NodeProto& node, int64_t axis) {
    set_attribute(node, "axis", axis);
    return node.output(0);
  }

  std::string parameter(const Node& node, const char* name) {
    if (!is_running_stat(node, name)) return sequences_.parameter(node, name);
    const std::string full = node.name + "." + name;
    const Weight& weight = weights_.find(full)->second;
    return out_.floats(full, weight.shape, weight.values);
  }
  static bool is_running_stat(const Node& node, const char* name) {
    const auto& stats = node.signature.running_stats;
    return std::ranges::find(stats, name, &Signature::RunningStat::name) != stats.end();
  }

  std::string dense(const DenseConfig& config, const Node& node, const std::string& x) {
    if (node.signature.output.rank() == 2) return sequences_.dense(config, node, x);
    NodeProto& gemm = out_.add("Gemm", node.name, {x, parameter(node, "weight")});
    if (config.bias()) gemm.add_input(parameter(node, "bias"));
    set_attribute(gemm, "transB", int64_t{1});
    return gemm.output(0);
  }

  std::string conv2d(const Conv2dConfig& config, const Node& node, const std::string& x) {
    NodeProto& conv = out_.add("Conv", node.name, {x, parameter(node, "weight")});
    if (config.bias()) conv.add_input(parameter(node, "bias"));
    set_attribute(conv, "kernel_shape", height_width(config.kernel(), {1, 1}, "kernel", 1));
    set_attribute(conv, "strides", height_width(config.stride(), {1, 1}, "stride", 1));
    set_padding(conv, height_width(config.padding(), {0, 0}, "padding", 0));
    set_attribute(conv, "dilations", height_width(config.dilation(), {1, 1}, "dilation", 1));
    set_attribute(conv, "group", config.groups());
    return conv.output(0);
  }

  std::string batch_norm(const BatchNormConfig& config, const Node& node, const std::string& x) {
    NodeProto& norm = out_.add("BatchNormalization", node.name,
                               {x, parameter(node, "weight"), parameter(node, "bias"),
                                parameter(node, "running_mean"), parameter(node, "running_var")});
    set_attribute(norm, "epsilon", config.epsilon());
    set_attribute(norm, "momentum", 1 - config.momentum());
    return norm.output(0);
  }

  std::string layer_norm(const LayerNormConfig& config, const Node& node, const std::string& x) {
    NodeProto& norm = out_.add("LayerNormalization", node.name,
                               {x, parameter(node, "weight"), parameter(node, "bias")});
    set_attribute(norm, "axis", int64_t{-1});
    set_attribute(norm, "epsilon", config.epsilon());
    return norm.output(0);
  }

  // Adds a parameter in another shape.
  std::string reshaped(const Node& node, const char* name, const Shape& shape) {
    const auto found =
        std::ranges::find(node.signature.parameters, name, &Signature::Parameter::name);
    const std::string full = parameter_name(node, *found);
    return out_.floats(full, shape, weights_.find(full)->second.values);
  }

  std::string scale(const ScaleConfig& config, const Node& node, const std::string& x) {
    Shape shape = node.signature.output;
    const int channel = shape.rank() == 3 ? 0 : shape.rank() - 1;
    for (int i = 0; i < shape.rank(); ++i) {
      if (config.per() == ScaleConfig::CHANNEL && i != channel) shape[i] = 1;
    }
    if (config.per() == ScaleConfig::ALL) shape = {};
    if (!config.bias()) return out_.result("Mul", node.name, {x, reshaped(node, "weight", shape)});
    std::string y = x;
    if (config.weight()) {
      y = out_.result("Mul", node.name + "/scale", {x, reshaped(node, "weight", shape)});
    }
    return out_.result("Add", node.name, {y, reshaped(node, "bias", shape)});
  }

  // GroupNormalization was added in opset 18 and fixed in 21. Before, groups are normalized as the
  // channels of an InstanceNormalization, which PyTorch writes, too.
  std::string group_norm(const GroupNormConfig& config, const Node& node, const std::string& x) {
    const Shape& shape = node.signature.output;
    const auto norm = [&](const std::string& of, const std::string& scale,
                          const std::string& shift) {
      NodeProto& added = out_.add("InstanceNormalization", node.name, {of, scale, shift});
      set_attribute(added, "epsilon", config.epsilon());
      return added.output(0);
    };
    const int64_t groups = config.num_groups();
    if (config.affine() && groups == shape[0] && shape.rank() > 1) {
      return norm(x, parameter(node, "weight"), parameter(node, "bias"));
    }
    const auto number_each = [&](const char* name, float number) {
      return out_.floats(node.name + name, {groups},
                         std::vector<float>(static_cast<size_t>(groups), number));
    };
    const auto reshape = [&](const char* name, const std::string& of, std::vector<int64_t> to) {
      to.insert(to.begin(), 0);  // copies the batch dimension
      return out_.result("Reshape", node.name + name,
                         {of, out_.integers(node.name + name + ".shape", to)});
    };
    const std::string rows = reshape("/groups", x, {groups, -1});
    const std::string normalized = norm(rows, number_each("/ones", 1), number_each("/zeros", 0));
    std::string y = reshape("/channels", normalized, {shape.begin(), shape.end()});
    if (!config.affine()) return y;
    y = out_.result("Mul", node.name + "/scale", {y, per_channel(node, "weight")});
    return out_.result("Add", node.name + "/shift", {y, per_channel(node, "bias")});
  }
  // Adds a parameter with one value for each channel, in a shape that broadcasts to the output of
  // the node.
  std::string per_channel(const Node& node, const char* name) {
    Shape shape = node.signature.output;
    for (int i = 1; i < shape.rank(); ++i) shape[i] = 1;
    return reshaped(node, name, shape);
  }

  NodeProto& pool(const char* op, const PoolConfig& config, const std::string& name,
                  const std::string& x) {
    NodeProto& node = out_.add(op, name, {x});
    const Pair kernel = height_width(config.kernel(), {1, 1}, "kernel", 1);
    set_attribute(node, "kernel_shape", kernel);
    set_attribute(node, "strides", height_width(config.stride(), kernel, "stride", 1));
    set_padding(node, height_width(config.padding(), {0, 0}, "padding", 0));
    return node;
  }

  std::string average_pool(const PoolConfig& config, const std::string& name,
                           const std::string& x) {
    NodeProto& node = pool("AveragePool", config, name, x);
    set_attribute(node, "count_include_pad", int64_t{config.include_padding()});
    return node.output(0);
  }

  // Writes the operators of a formula. The last one has the layer's name; the others have a number
  // appended.
  std::string write(const ActivationFormula& formula, const Node& node, const std::string& x) {
    std::vector<std::string> results;
    for (const Term& term : formula.terms) {
      const bool last = results.size() + 1 == formula.terms.size();
      const std::string name = last ? node.name : fmt::format("{}/{}", node.name, results.size());
      const auto operand = [&](int which) {
        if (which == Term::kX) return x;
        if (which == Term::kNumber) return out_.floats(name + ".value", {}, {term.number});
        return results[which];
      };
      std::vector<std::string> inputs{operand(term.a)};
      if (is_binary(term.op)) inputs.push_back(operand(term.b));
      results.push_back(out_.result(term.op, name, inputs));
    }
    return results.back();
  }

  ModelWriter& out_;
  const Weights& weights_;
  SequenceWriter sequences_;
};

// Writes the layers that the result depends on, between the input and the result.
class Exporter {
 public:
  Exporter(const ModelConfig& model, const ModelInput& input, const Weights& weights,
           const OnnxExportOptions& options)
      : network_(network_of(model, input)),
        graph_(declare_graph(network_, input)),
        weights_(weights),
        options_(options),
        model_(writer_.model()),
        onnx_(writer_.graph()),
        dynamic_length_(has_dynamic_length(network_, input)),
        layers_(writer_, weights, dynamic_length_),
        values_(graph_.nodes.size()) {}

  std::string run() {
    check_weights();
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name(kProducer);
    model_.set_producer_version(version());
    model_.add_opset_import()->set_version(kOpset);
    for (const auto& [key, value] : options_.metadata) {
      StringStringEntryProto& entry = *model_.add_metadata_props();
      entry.set_key(key);
      entry.set_value(value);
    }
    onnx_.set_name(graph_.name.empty() ? "network" : graph_.name);
    describe(*onnx_.add_input(), kInput, graph_.input.input.dtype, graph_.input.input.shape,
             dynamic_length_);
    if (options_.image) onnx_.mutable_input(0)->mutable_type()->set_denotation("IMAGE");
    if (options_.normalize) normalize();
    for (size_t n = 0; n + 1 < graph_.nodes.size(); ++n) {
      if (live_.contains(static_cast<int>(n))) write_layer(n);
    }
    finish();
    return model_.SerializeAsString();
  }

 private:
  const Node& loss() const { return graph_.nodes.back(); }
  const Shape& shape_of(int node) const {
    return node < 0 ? graph_.input.input.shape : graph_.nodes[node].signature.output;
  }

  // Finds the layers that the result depends on, which are those that are written. Throws
  // ConfigError unless all their values are present and fit into an ONNX file.
  void check_weights() {
    live_.insert(loss().inputs[0]);
    for (auto n = static_cast<int>(graph_.nodes.size()) - 2; n >= 0; --n) {
      if (!live_.contains(n)) continue;
      const std::vector<int>& inputs = graph_.nodes[n].inputs;
      live_.insert(inputs.begin(), inputs.end());
    }
    uint64_t bytes = kMetadataBytes;
    for (const int n : live_) {
      if (n < 0) continue;
      const Node& node = graph_.nodes[n];
      for (const auto& parameter : node.signature.parameters) {
        bytes += check(parameter_name(node, parameter), parameter.shape);
      }
      for (const auto& running : node.signature.running_stats) {
        bytes += check(node.name + "." + running.name, running.shape);
      }
    }
    if (bytes > std::numeric_limits<int32_t>::max()) {
      throw ConfigError("model",
                        "the weights exceed the 2 GiB limit of ONNX files; use the checkpoint's "
                        "model.safetensors instead");
    }
  }

  uint64_t check(const std::string& name, const Shape& shape) const {
    const auto found = weights_.find(name);
    if (found == weights_.end()) throw ConfigError("model", "no values for '" + name + "'");
    if (!(found->second.shape == shape)) {
      throw ConfigError("model",
                        fmt::format("the values of '{}' are {}, but the network requires {}", name,
                                    found->second.shape.to_string(), shape.to_string()));
    }
    return static_cast<uint64_t>(shape.elements()) * sizeof(float);
  }

  // Returns the name of the output of a node, or of the network's input.
  std::string value_of(int node) const { return node < 0 ? input_ : values_[node]; }

  void normalize() {
    const auto scale = static_cast<float>(double{graph_.input.scale} * options_.input_unit);
    const InputNormalization n{scale, graph_.input.mean, graph_.input.stddev};
    if (is_identity(n)) return;
    if (n.scale != 1) affine("Mul", kNormalizeScale, {n.scale});
    affine("Sub", kNormalizeMean, n.mean);
    affine("Div", kNormalizeStddev, n.stddev);
  }
  void affine(const char* op, const std::string& name, const std::vector<float>& values) {
    Shape shape{1};
    if (values.size() > 1) {  // one for each channel, broadcast over the other dimensions
      shape = Shape({1, 1, 1});
      if (graph_.input.input.shape.rank() == 1) shape = Shape{0};
      shape[0] = static_cast<int64_t>(values.size());
    }
    input_ = writer_.result(op, name, {input_, writer_.floats(name + ".value", shape, values)});
  }

  void write_layer(size_t n) {
    const Node& node = graph_.nodes[n];
    std::vector<std::string> inputs;
    for (const int input : node.inputs) inputs.push_back(value_of(input));
    values_[n] = layers_.write(network_.layer(static_cast<int>(n)), node, inputs);
  }

  void finish() {
    std::string result = value_of(loss().inputs[0]);
    const Shape& shape = shape_of(loss().inputs[0]);
    const bool classifies = graph_.input.classes > 0;
    if (options_.softmax && classifies) {
      NodeProto& softmax = writer_.add("Softmax", "probabilities", {result});
      set_attribute(softmax, "axis", int64_t{-1});
      result = softmax.output(0);
    }
    const char* name = !classifies ? "output" : options_.softmax ? "probabilities" : "logits";
    if (result == kInput) result = writer_.result("Identity", name, {result});
    for (NodeProto& node : *onnx_.mutable_node()) {
      for (std::string& value : *node.mutable_output()) {
        if (value == result) value = name;
      }
      for (std::string& value : *node.mutable_input()) {
        if (value == result) value = name;
      }
    }
    describe(*onnx_.add_output(), name, DType::kF32, shape, dynamic_length_ && shape.rank() == 2);
  }

  const NetworkConfig network_;
  const Graph graph_;
  const Weights& weights_;
  const OnnxExportOptions& options_;
  ModelWriter writer_;
  ModelProto& model_;
  GraphProto& onnx_;
  bool dynamic_length_;
  LayerWriter layers_;
  std::set<int> live_;               // nodes that the result depends on; -1 is the input
  std::string input_ = kInput;       // name of the normalized input
  std::vector<std::string> values_;  // by node: the name of its output
};

}  // namespace

std::string to_onnx(const ModelConfig& model, const ModelInput& input, const Weights& weights,
                    const OnnxExportOptions& options) {
  return Exporter(model, input, weights, options).run();
}

}  // namespace trireme::model
