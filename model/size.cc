#include "model/size.h"

#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "model/graph.h"

namespace trireme::model {
namespace {

constexpr int64_t kMaxOutput = int64_t{1} << 56;  // elements for a micro-batch

// Returns a * b, or nullopt if it exceeds `max`.
std::optional<int64_t> product(int64_t a, int64_t b, int64_t max) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > max) return std::nullopt;
  return result;
}

}  // namespace

void require_size(const std::string& name, const Shape& shape) {
  std::optional<int64_t> elements = 1;
  for (int64_t extent : shape) {
    if (elements) elements = product(*elements, extent, kMaxElements);
  }
  if (elements) return;
  throw Error(fmt::format("{} of shape {} exceeds the limit of {} elements", name,
                          shape.to_string(), kMaxElements));
}

NetworkSize size_of(const Graph& graph, int64_t batch) {
  NetworkSize size;
  const auto check_output = [&](const std::string& layer, const Shape& shape, bool in_parts) {
    const auto elements = product(shape.elements(), batch, kMaxOutput);
    if (!elements) {
      throw ConfigError("model", fmt::format("layer '{}': the output of shape {} exceeds the limit "
                                             "of {} elements for {} samples",
                                             layer, shape.to_string(), kMaxOutput, batch));
    }
    if (!in_parts && *elements > size.largest_output) {
      size.largest_output = *elements;
      size.largest_output_layer = layer;
    }
  };
  check_output("input", graph.input.input.shape, false);
  int64_t max = 0;
  // The logits of a language model are computed in parts, with the loss.
  const int before_loss = graph.nodes.back().inputs[0];
  for (const Node& node : graph.nodes) {
    const bool feeds_loss = before_loss >= 0 && &node == &graph.nodes[before_loss];
    check_output(node.name, node.signature.output, feeds_loss && node.layer->is_linear());
    int64_t own = 0;
    for (const auto& parameter : node.signature.parameters) {
      if (!parameter.tied_to.empty()) continue;  // counted there
      own += parameter.shape.elements();
      if (!parameter.frozen) size.trained += parameter.shape.elements();
    }
    size.parameters += own;
    if (own > max) {
      max = own;
      size.largest_layer = node.name;
    }
    if (size.parameters > kMaxElements) {
      throw ConfigError("model", fmt::format("layer '{}': the network exceeds the limit of {} "
                                             "parameters at this layer",
                                             node.name, kMaxElements));
    }
  }
  return size;
}

}  // namespace trireme::model
