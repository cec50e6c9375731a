// How large a network is, by its shapes alone: before operations are planned, whose planning takes
// sizes that memory could hold.
#pragma once

#include <cstdint>
#include <string>

#include "core/shape.h"

namespace trireme::model {

struct Graph;

// Of one parameter or of one sample's output, in numbers; a network has at most as many parameters.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Throws Error, which begins with `what`, when the shape has more than kMaxElements.
void require_size(const std::string& what, const Shape& shape);

// In numbers, so that none of its products with a few bytes overflows.
struct NetworkSize {
  int64_t parameters = 0;
  int64_t trained = 0;               // of these
  std::string most_parameters;       // the layer that has them
  int64_t largest_output = 0;        // of a layer, for a whole micro-batch
  std::string largest_output_layer;  // "input" where no layer's is larger than the samples
};

// For `batch` rows. Throws ConfigError naming the layer when sizes add up to more than any memory
// has.
NetworkSize size_of(const Graph& graph, int64_t batch);

}  // namespace trireme::model
