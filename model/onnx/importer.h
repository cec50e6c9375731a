// Converts a graph of ONNX operators to layers. The importer visits the nodes in order and records
// the Value of each output. Computations on constants and shapes are evaluated, elementwise
// operators are collected until their activation is known, and other operators become layers
// immediately.
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
#include <utility>
#include <variant>
#include <vector>

#include "model/layer.h"
#include "model/onnx/activations.h"
#include "model/onnx/node.h"
#include "model/onnx/onnx.h"
#include "model/onnx/sequence_layers.h"
#include "model/onnx/tensors.h"

namespace trireme::model::onnx {

// The values that names in the graph may refer to.
struct InputValue {};  // the model's input, normalized as far as the operators before it do
struct LayerValue {    // the output of a layer, or the normalized input (kInput)
  static constexpr int kInput = -1;
  int layer;
};
struct FunctionValue {  // elementwise operators applied to the output of one layer
  size_t function;      // index into Importer::functions_
};
struct TensorValue {  // a constant
  const TensorProto* tensor;
  std::string name;    // of the parameter that it may be
  bool fixed = false;  // the output of a Constant operator, which is no parameter in any framework
};
struct IntegersValue {  // a shape, or part of one
  // Placeholders for dimensions that the file does not fix.
  static constexpr int64_t kBatch = -1000001;
  static constexpr int64_t kOpen = -1000002;
  std::vector<int64_t> values;
};
struct InnerValue {};     // computed by an operator that is part of a layer
struct TransposedValue {  // a constant of two dimensions, transposed
  std::string name;       // of the constant
};
struct GroupedValue {  // the output of a layer, reshaped to [N, groups, rest]
  int layer;
  int64_t groups;
};
struct UnsupportedValue {};  // the output of an operator that is not supported
using Value = std::variant<UnsupportedValue, InputValue, LayerValue, FunctionValue, TensorValue,
                           IntegersValue, TransposedValue, InnerValue, GroupedValue>;

// Thrown if an operator cannot be imported; caught within the importer.
struct Unsupported {
  size_t node;
  std::string why;  // empty if the operator is not known
};
// Thrown if an operator reads the output of an unsupported one, which has been reported already.
struct DependsOnUnsupported {};

// The base of the importer, without the operators that become layers (see make_importer).
class Importer {
 public:
  Importer(const ModelProto& model, const std::filesystem::path& path);
  virtual ~Importer() = default;
  OnnxModel run();

 protected:
  struct Layer {
    LayerConfig config;
    size_t node;                   // the node that computes the output
    size_t first = node;           // the first of its nodes, by which layers are in order
    std::vector<int> inputs;       // indices of layers, or LayerValue::kInput
    std::optional<Shape> shape;    // shape of the output, if the file determines it
    bool bias_may_follow = false;  // a later operator may add the bias, which is zero until then
  };
  struct Function {
    size_t node;  // the last of its operators
    int source;   // the layer that it is a function of
    Probe probe;
    int depth;  // number of operators in sequence
    std::vector<std::string> inputs;
    bool fixed = true;              // whether its numbers are all TensorValue::fixed
    std::optional<int> layer = {};  // set once it has been added as a layer
  };
  // The nodes that the output needs and that read a value, except for its shape.
  struct Readers {
    int count = 0;
    int last = -1;  // one of them
  };
  // The first layer that has a constant of the file as a parameter.
  struct Owner {
    int layer;
    std::string parameter;
    std::string form;  // see add_parameter
  };
  using Handler = void (Importer::*)(const NodeView&);
  // Returns the function that imports an operator, or null if it is not supported.
  virtual Handler handler(std::string_view op) const = 0;

  // --- The import as a whole (import.cc).
  [[noreturn]] void throw_damaged(const std::string& why) const;
  [[noreturn]] void throw_config_error(const std::string& why) const;
  void read_opset();
  void check_names() const;
  void find_needed();
  void read_inputs();
  void read_input(const ValueInfoProto& input);
  void find_sequences(const std::string& input);
  void visit(size_t n);
  void report_unsupported(const Unsupported& unsupported);
  OnnxModel finish();
  int result();
  void write_layers(NetworkConfig& network) const;

  // --- Layers of sequences (sequence_import.cc).
  void add_sequence_layer(const NodeView& node, const SequenceLayer& found);
  void add_recurrent_weights(const NodeView& node, int layer, const SequenceLayer& found);
  void add_class_token(const NodeView& node, int layer, const SequenceLayer& found);

  // --- Values of names (values.cc).
  const Value& value(const std::string& name) const;
  void set_output(const NodeView& node, Value value);
  bool is_tensor(const std::string& name) const;
  // Returns the layer that computes an input of the node. Adds the layer if it is an activation
  // that has not been added yet. Throws Unsupported if the input is not the output of a layer.
  int layer_of(const NodeView& node, const std::string& name);
  int layer_of(size_t function);
  std::optional<Shape> shape_of(int layer) const;
  std::vector<float> floats(const NodeView& node, const std::string& name);
  std::vector<int64_t> integers(const NodeView& node, const std::string& name) const;
  std::vector<int64_t> extents(const NodeView& node, const std::string& name) const;
  const TensorProto& tensor(const NodeView& node, const std::string& name) const;
  // Returns the size of so many values in bytes. Throws DataError if it exceeds bytes_left_.
  uint64_t check_size(int64_t elements) const;
  // Returns values that are not in the file, which count towards its memory limit.
  std::vector<float> filled(int64_t elements, float value);
  // Stores a constant that is not an initializer of the file, and returns it.
  const TensorProto& store_constant(TensorProto tensor);

  // --- Layers (values.cc).
  int add_layer(const NodeView& node, LayerConfig config, std::vector<int> inputs,
                const std::string& weight = {});
  void infer(const NodeView& node, Layer& layer);
  std::string name_for(const NodeView& node, std::string_view kind, const std::string& weight);
  void add_weight(int layer, const char* name, const Shape& shape, std::vector<float> values);
  // Makes a constant of the file a parameter of the layer: `values`, which are derived from it in a
  // way that `form` names. If it is a parameter of an earlier layer, the layers share it. Throws
  // Unsupported if they cannot.
  void add_parameter(const NodeView& node, int layer, const std::string& name,
                     const std::string& constant, const Shape& shape, const std::string& form = {});
  // Notes that the constant is this parameter of the layer. Returns false, and shares the parameter
  // of the earlier layer, if it is one already.
  bool own(const NodeView& node, int layer, const std::string& name, const std::string& constant,
           const std::string& form = {});
  void freeze(int layer, const char* name);

  // --- Elementwise operators (elementwise.cc). The try_ functions import the operator if it has
  // the form that they look for, and return whether they have done so.
  void elementwise(const NodeView& node);
  bool try_normalization(const NodeView& node);
  bool normalizes(const NodeView& node, const std::string& constant, bool reversed) const;
  bool try_bias(const NodeView& node);
  bool try_scale(const NodeView& node);
  bool try_function(const NodeView& node);
  int add_scale(const NodeView& node);
  void add_scale_parameter(const NodeView& node, int layer, const char* name,
                           const TensorValue& constant, const std::string& by);
  std::optional<ScaleConfig::Per> per_of(const TensorProto& tensor, int input) const;
  std::vector<float> per_channel_values(const TensorProto& tensor, int rank) const;
  std::optional<float> scalar(const std::string& name) const;
  std::optional<Function> as_function(const NodeView& node, const std::string& name);

  const ModelProto& model_;
  const GraphProto& graph_;
  std::filesystem::path path_;
  TensorReader reader_;
  uint64_t bytes_left_;  // memory limit for values, so that a small file cannot allocate much

  std::unordered_map<std::string, Value> values_;
  std::unordered_map<std::string, Readers> readers_;  // by name, of what the output needs
  std::deque<TensorProto> constants_;
  std::vector<Function> functions_;
  std::vector<Layer> layers_;
  std::set<std::string> names_;
  std::unordered_map<std::string, int> suffixes_;  // by name: the last number appended to it
  std::vector<std::string> unsupported_;
  std::set<size_t> reported_;  // nodes in unsupported_
  // The operators of imported_.normalization and their constants that may be parameters.
  std::vector<std::pair<std::string, std::string>> not_trained_;
  bool reads_tokens_ = false;
  int64_t length_ = 0;  // of samples of tokens, for shapes; any if imported_.input leaves it open
  std::map<int, SequenceLayer> sequence_layers_;   // by the node of the output
  std::set<int> inner_nodes_;                      // their other nodes
  std::unordered_map<std::string, Owner> owners_;  // by TensorValue::name
  int64_t batch_ = IntegersValue::kBatch;          // or the batch size, if the file fixes it
  OnnxModel imported_;
};

// Returns an importer of all operators that correspond to layers (operators.cc).
std::unique_ptr<Importer> make_importer(const ModelProto& model, const std::filesystem::path& path);

}  // namespace trireme::model::onnx
