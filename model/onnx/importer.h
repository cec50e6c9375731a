// How a graph of operators becomes layers: node after node, each saying what the names of its
// outputs stand for. Numbers are worked out, elementwise operators wait until it shows which
// activation they add up to, all else becomes a layer at once.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "model/layer.h"
#include "model/onnx/activations.h"
#include "model/onnx/node.h"
#include "model/onnx/onnx.h"
#include "model/onnx/tensors.h"

namespace trireme::model::onnx {

// What a name stands for.
struct InputValue {  // the model's input, perhaps normalized
  InputNormalization normalization;
};
struct LayerValue {  // what a layer computes; kInput: the input as the network sees it
  static constexpr int kInput = -1;
  int layer;
};
struct FunctionValue {  // elementwise operators on one layer's output
  size_t function;
};
struct TensorValue {
  const TensorProto* tensor;
};
struct IntegersValue {  // a shape, or part of one
  // Extents that are not known before there are samples.
  static constexpr int64_t kBatch = -1000001;
  static constexpr int64_t kOpen = -1000002;
  std::vector<int64_t> values;
};
struct GroupedValue {  // what a layer computes, as [N, groups, the rest]
  int layer;
  int64_t groups;
};
struct UnsupportedValue {};  // comes from an operator that is not supported
using Value = std::variant<UnsupportedValue, InputValue, LayerValue, FunctionValue, TensorValue, IntegersValue, GroupedValue>;

// Thrown and caught within the import: the operator has no layer here.
struct Unsupported {
  size_t node;
  std::string why;  // empty: it is unknown altogether
};
// The operator reads what comes from an unsupported one, which has been noted already.
struct Unknown {};

class Importer {
 public:
  Importer(const ModelProto& model, const std::filesystem::path& path);
  virtual ~Importer() = default;
  OnnxModel run();

 protected:
  struct Layer {
    LayerConfig config;
    size_t node;                   // that gives its output
    std::vector<int> inputs;       // other layers
    std::optional<Shape> shape;    // of the output, where the file tells
    bool bias_may_follow = false;  // in an operator of its own; it is zero until then
  };
  struct Function {
    size_t node;
    int source;  // the layer
    Probe probe;
    int depth;
    std::vector<std::string> inputs;
    std::optional<int> layer = {};  // once it is needed
  };
  using Handler = void (Importer::*)(const NodeView&);
  // What reads an operator; null where nothing does.
  virtual Handler handler(std::string_view op) const = 0;

  // --- The whole (import.cc).
  [[noreturn]] void damaged(const std::string& why) const;
  [[noreturn]] void refuse(const std::string& why) const;
  void read_opset();
  void find_needed();
  void read_inputs();
  void read_input(const ValueInfoProto& input);
  void visit(size_t n);
  void note(const Unsupported& unsupported);
  OnnxModel finish();
  int result();
  void write_layers(NetworkConfig& network) const;

  // --- What names stand for (values.cc).
  const Value& value(const std::string& name) const;
  void set_output(const NodeView& node, Value value);
  bool is_tensor(const std::string& name) const;
  // The layer whose output it is, added now where it is an activation.
  int layer_of(const NodeView& node, const std::string& name);
  int layer_of(size_t function);
  std::optional<Shape> shape_of(int layer) const;
  std::vector<float> floats(const NodeView& node, const std::string& name);
  std::vector<int64_t> integers(const NodeView& node, const std::string& name) const;
  std::vector<int64_t> extents(const NodeView& node, const std::string& name) const;
  const TensorProto& tensor(const NodeView& node, const std::string& name) const;
  // Bytes that its values take; refused where the file cannot have so many.
  uint64_t check_room(const TensorProto& tensor) const;
  // Constants from attributes, and other numbers made on the way.
  const TensorProto& keep(TensorProto tensor);

  // --- Layers (values.cc).
  int add_layer(const NodeView& node, LayerConfig config, std::vector<int> inputs,
                const std::string& weight = {});
  void infer(const NodeView& node, Layer& layer);
  std::string name_for(const NodeView& node, std::string_view kind, const std::string& weight);
  void add_weight(int layer, const char* name, const Shape& shape, std::vector<float> values);

  // --- Elementwise operators (elementwise.cc).
  void elementwise(const NodeView& node);
  bool normalization(const NodeView& node);
  bool bias(const NodeView& node);
  bool scale(const NodeView& node);
  bool function(const NodeView& node);
  std::vector<float> per_channel_values(const TensorProto& tensor, int rank) const;
  std::optional<float> scalar(const std::string& name) const;
  std::optional<Function> as_function(const NodeView& node, const std::string& name);

  const ModelProto& model_;
  const GraphProto& graph_;
  std::filesystem::path path_;
  TensorReader reader_;
  uint64_t bytes_left_;  // for values, so that a small file cannot ask for much

  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, int> readers_;  // of names that the output depends on
  std::deque<TensorProto> kept_;
  std::vector<Function> functions_;
  std::vector<Layer> layers_;
  std::set<std::string> names_;
  std::vector<std::string> unsupported_;
  std::set<size_t> noted_;  // nodes that are among them
  std::optional<InputNormalization> normalization_;
  int64_t batch_ = IntegersValue::kBatch;  // or what the file fixes it to
  OnnxModel made_;
};

// That reads all operators there are layers for (operators.cc).
std::unique_ptr<Importer> make_importer(const ModelProto& model, const std::filesystem::path& path);

}  // namespace trireme::model::onnx
