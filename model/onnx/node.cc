#include "model/onnx/node.h"

#include <fmt/format.h>

#include <cctype>

namespace trireme::model::onnx {
namespace {

const std::string kNone;

// Returns whether a part of a name is the operator, possibly numbered: "Relu", "Relu_1".
bool is_operator(std::string_view part, std::string_view op) {
  if (!part.starts_with(op)) return false;
  part.remove_prefix(op.size());
  if (part.empty()) return true;
  if (part[0] != '_' || part.size() == 1) return false;
  for (const char c : part.substr(1)) {
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

}  // namespace

const std::string& NodeView::input(int i) const {
  return i < node_.input_size() ? node_.input(i) : kNone;
}
const std::string& NodeView::output() const {
  return node_.output_size() > 0 ? node_.output(0) : kNone;
}

const AttributeProto* NodeView::find(std::string_view attribute) const {
  for (const AttributeProto& candidate : node_.attribute()) {
    if (candidate.name() == attribute) return &candidate;
  }
  return nullptr;
}
int64_t NodeView::integer(std::string_view attribute, int64_t unset) const {
  const AttributeProto* found = find(attribute);
  return found ? found->i() : unset;
}
float NodeView::number(std::string_view attribute, float unset) const {
  const AttributeProto* found = find(attribute);
  return found ? found->f() : unset;
}
std::string NodeView::text(std::string_view attribute) const {
  const AttributeProto* found = find(attribute);
  return found ? found->s() : "";
}
std::vector<int64_t> NodeView::integers(std::string_view attribute) const {
  const AttributeProto* found = find(attribute);
  if (!found) return {};
  return {found->ints().begin(), found->ints().end()};
}

std::string describe(const NodeProto& node) {
  const std::string op =
      node.domain().empty() ? node.op_type() : node.domain() + "." + node.op_type();
  return fmt::format("{} (node '{}')", op,
                     node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name());
}

std::string name_of_node(const NodeView& node) {
  std::string_view rest = node.name();
  if (rest.starts_with("node_")) return std::string(rest.substr(5));
  if (!rest.starts_with('/')) return std::string(rest);
  std::string name;      // the path of modules so far
  std::string_view own;  // the innermost module
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size());
    if (rest.empty() && is_operator(part, node.op())) break;
    if (!own.empty() && part.starts_with(own) && part.substr(own.size()).starts_with('.')) {
      name.resize(name.size() - own.size());  // "layer1", then "layer1.0"
    } else if (!name.empty()) {
      name += '.';
    }
    name += part;
    own = part;
  }
  return name;
}

}  // namespace trireme::model::onnx
