// A node of the graph, with its attributes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/onnx/onnx.pb.h"

namespace trireme::model::onnx {

class NodeView {
 public:
  NodeView(const NodeProto& node, size_t its_place) : place(its_place), node_(node) {}

  const size_t place;  // in the graph
  const std::string& op() const { return node_.op_type(); }
  const std::string& name() const { return node_.name(); }
  int inputs() const { return node_.input_size(); }
  // Whether the optional input is there.
  bool has_input(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  // Empty where there is none.
  const std::string& input(int i) const;
  const std::string& output() const;

  bool has(std::string_view attribute) const { return find(attribute) != nullptr; }
  int64_t integer(std::string_view attribute, int64_t unset) const;
  float number(std::string_view attribute, float unset) const;
  std::string text(std::string_view attribute) const;
  std::vector<int64_t> integers(std::string_view attribute) const;
  const AttributeProto* find(std::string_view attribute) const;

 private:
  const NodeProto& node_;
};

// "Conv (node '/conv1/Conv')".
std::string describe(const NodeProto& node);
// The name of a layer, from that of a node: exporters put in scopes and operators,
// "/layer1/layer1.0/conv1/Conv" or "node_relu_1". Empty where nothing is left.
std::string name_of_node(const NodeView& node);

}  // namespace trireme::model::onnx
