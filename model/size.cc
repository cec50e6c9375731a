#include "model/size.h"

#include <fmt/format.h>

#include <optional>

#include "core/error.h"
#include "model/graph.h"

namespace trireme::model {
namespace {

constexpr int64_t kMaxOutput = int64_t{1} << 56;  // of a micro-batch, in numbers

std::optional<int64_t> product(int64_t a, int64_t b, int64_t max) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > max) return std::nullopt;
  return result;
}

}  // namespace

void require_size(const std::string& what, const Shape& shape) {
  std::optional<int64_t> elements = 1;
  for (int64_t extent : shape) {
    if (elements) elements = product(*elements, extent, kMaxElements);
  }
  if (elements) return;
  throw Error(fmt::format("{} of shape {} would have more than {} numbers, which no memory holds",
                          what, shape.to_string(), kMaxElements));
}

NetworkSize size_of(const Graph& graph, int64_t batch) {
  NetworkSize size;
  const auto look_at_output = [&](const std::string& layer, const Shape& shape) {
    const auto elements = product(shape.elements(), batch, kMaxOutput);
    if (!elements) {
      throw ConfigError("model", fmt::format("layer '{}': its output {} would have more than {} "
                                             "numbers for {} samples, which no memory holds",
                                             layer, shape.to_string(), kMaxOutput, batch));
    }
    if (*elements > size.largest_output) {
      size.largest_output = *elements;
      size.largest_output_layer = layer;
    }
  };
  look_at_output("input", graph.input.input.shape);
  int64_t most = 0;
  for (const Node& node : graph.nodes) {
    look_at_output(node.name, node.signature.output);
    int64_t own = 0;
    for (const auto& parameter : node.signature.parameters) {
      own += parameter.shape.elements();
      if (!parameter.frozen) size.trained += parameter.shape.elements();
    }
    size.parameters += own;
    if (own > most) {
      most = own;
      size.most_parameters = node.name;
    }
    if (size.parameters > kMaxElements) {
      throw ConfigError("model", fmt::format("layer '{}': with it the network would have more than "
                                             "{} parameters, which no memory holds",
                                             node.name, kMaxElements));
    }
  }
  return size;
}

}  // namespace trireme::model
