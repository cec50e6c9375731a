// Read access to a node of an ONNX graph and its attributes.
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

  const size_t place;  // index in the graph
  const std::string& op() const { return node_.op_type(); }
  const std::string& name() const { return node_.name(); }
  int inputs() const { return node_.input_size(); }
  // Returns whether the optional input i is present.
  bool has_input(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  // Return the name of an input or of the first output, or "" if there is none.
  const std::string& input(int i) const;
  const std::string& output() const;

  // Return an attribute, or `unset` (or an empty value) if the node does not have it.
  bool has(std::string_view attribute) const { return find(attribute) != nullptr; }
  int64_t integer(std::string_view attribute, int64_t unset) const;
  float number(std::string_view attribute, float unset) const;
  std::string text(std::string_view attribute) const;
  std::vector<int64_t> integers(std::string_view attribute) const;
  const AttributeProto* find(std::string_view attribute) const;

 private:
  const NodeProto& node_;
};

// Returns a description for messages: "Conv (node '/conv1/Conv')".
std::string describe(const NodeProto& node);
// Returns a layer name derived from the name of a node, without the scopes and operators that
// exporters add: "layer1.0.conv1" from "/layer1/layer1.0/conv1/Conv", "relu_1" from "node_relu_1".
// Returns "" if nothing remains.
std::string name_of_node(const NodeView& node);

}  // namespace trireme::model::onnx
