#include "model/onnx/template.h"

#include <algorithm>
#include <cmath>

namespace trireme::model::onnx {
namespace {

// Constants that depend on a number of the file, such as rotations, are recomputed.
constexpr float kTolerance = 1e-4F;

bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return std::abs(x - y) <= kTolerance * std::max(1.0F, std::abs(x));
  });
}

bool same_attributes(const NodeProto& wanted, const NodeProto& found) {
  if (wanted.attribute_size() != found.attribute_size()) return false;
  return std::ranges::all_of(wanted.attribute(), [&](const AttributeProto& attribute) {
    return std::ranges::any_of(found.attribute(), [&](const AttributeProto& other) {
      return other.name() == attribute.name() && other.i() == attribute.i() &&
             other.f() == attribute.f() && other.s() == attribute.s() &&
             std::ranges::equal(other.ints(), attribute.ints());
    });
  });
}

}  // namespace

Template::Template(const GraphProto& wanted, const GraphIndex& graph)
    : wanted_(wanted, wanted_reader_), graph_(graph) {}

std::string Template::value_of(const std::string& wanted) const {
  const auto found = values_.find(wanted);
  return found == values_.end() ? "" : found->second;
}

bool Template::equals(const std::string& wanted, const std::string& found) {
  const auto known = values_.find(wanted);
  if (known != values_.end()) return known->second == found;
  if (const TensorProto* constant = wanted_.constant(wanted)) {
    if (!same_constant(*constant, found)) return false;
  } else if (const GraphIndex::Source source = wanted_.source_of(wanted); source.node >= 0) {
    const GraphIndex::Source other = graph_.source_of(found);
    if (other.node < 0 || other.output != source.output ||
        !same_node(wanted_.graph().node(source.node), other.node)) {
      return false;
    }
  }
  values_[wanted] = found;
  return true;
}

bool Template::same_node(const NodeProto& wanted, int place) {
  const NodeProto& found = graph_.graph().node(place);
  if (wanted.op_type() != found.op_type() || !found.domain().empty() ||
      wanted.input_size() != found.input_size() || wanted.output_size() != found.output_size() ||
      !same_attributes(wanted, found)) {
    return false;
  }
  for (int i = 0; i < wanted.input_size(); ++i) {
    if (wanted.input(i).empty() != found.input(i).empty()) return false;
    if (!wanted.input(i).empty() && !equals(wanted.input(i), found.input(i))) return false;
  }
  nodes_.insert(place);
  return true;
}

bool Template::same_constant(const TensorProto& wanted, const std::string& name) const {
  const TensorProto* const found = graph_.constant(name);
  if (!found || !std::ranges::equal(found->dims(), wanted.dims()) ||
      found->data_type() != wanted.data_type()) {
    return false;
  }
  if (wanted.data_type() == TensorProto::INT64) {
    return wanted_reader_.integers(wanted) == graph_.reader().integers(*found);
  }
  return same_numbers(wanted_reader_.floats(wanted), graph_.reader().floats(*found));
}

}  // namespace trireme::model::onnx
