// Compares part of a graph with a template.
#pragma once

#include <map>
#include <set>
#include <string>

#include "model/onnx/onnx.pb.h"
#include "model/onnx/sequence_layers.h"

namespace trireme::model::onnx {

class Template {
 public:
  // Values of `wanted` that it neither computes nor contains stand for any values of the graph.
  Template(const GraphProto& wanted, const GraphIndex& graph);

  // Declares that a value of the template stands for this value of the graph.
  void bind(const std::string& wanted, const std::string& found) { values_[wanted] = found; }
  // Returns whether the graph computes `found` as the template computes `wanted`: by the same
  // operators with the same attributes and constants. Names of operators and values do not matter.
  bool equals(const std::string& wanted, const std::string& found);

  // Return what has been compared: the value that a name of the template stands for, "" if none,
  // and the operators of the graph.
  std::string value_of(const std::string& wanted) const;
  const std::set<int>& nodes() const { return nodes_; }

 private:
  bool same_node(const NodeProto& wanted, int found);
  bool same_constant(const TensorProto& wanted, const std::string& found) const;

  const TensorReader wanted_reader_{""};
  const GraphIndex wanted_;
  const GraphIndex& graph_;
  std::map<std::string, std::string> values_;
  std::set<int> nodes_;
};

}  // namespace trireme::model::onnx
