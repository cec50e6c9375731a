// Recognizes the layers of sequences in a graph, each of which is several operators. A layer is
// recognized if its operators are those that SequenceWriter writes, whatever their names are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/model.pb.h"
#include "model/onnx/onnx.pb.h"
#include "model/onnx/tensors.h"

namespace trireme::model::onnx {

// Looks up values by name.
class GraphIndex {
 public:
  GraphIndex(const GraphProto& graph, const TensorReader& reader);

  const GraphProto& graph() const { return graph_; }
  const TensorReader& reader() const { return reader_; }
  // Returns the index of the node that computes a value, -1 if no node does, and which of its
  // outputs the value is.
  struct Source {
    int node = -1;
    int output = 0;
  };
  Source source_of(const std::string& value) const;
  // Returns the node that computes a value if it is of this operator, otherwise null.
  const NodeProto* made_by(const std::string& value, std::string_view op) const;
  const TensorProto* constant(const std::string& value) const;  // null if it is none
  // Return the contents of constants; nullopt if the value is none, or has more than a few numbers.
  std::optional<std::vector<int64_t>> integers(const std::string& value) const;
  std::optional<int64_t> integer(const std::string& value) const;  // a scalar
  std::optional<float> number(const std::string& value) const;     // likewise

 private:
  const GraphProto& graph_;
  const TensorReader& reader_;
  std::unordered_map<std::string, Source> sources_;
  std::unordered_map<std::string, const TensorProto*> constants_;
};

struct SequenceLayer {
  LayerConfig config;
  std::string input;  // the name of the value that the layer reads
  // The names of its parameters in the file, by their names in the layer. Those of recurrent layers
  // are "weight_ih_l0", "weight_hh_l0" and "bias_l0", of both directions, in the order of ONNX.
  std::map<std::string, std::string> parameters;
  std::set<int> nodes;                 // all operators, the last of which computes the output
  std::optional<int64_t> length = {};  // of the samples, if the layer determines it
};

// Returns the layers by the index of their last operator. `tokens` is the name of the network's
// input, and `dynamic` is set if its number of tokens is.
std::map<int, SequenceLayer> find_sequence_layers(const GraphIndex& graph,
                                                  const std::string& tokens, bool dynamic);

}  // namespace trireme::model::onnx
