// Computes the size of a network from its shapes alone. Used to reject networks that cannot fit
// into memory before their operations are planned.
#pragma once

#include <cstdint>
#include <string>

#include "core/shape.h"

namespace trireme::model {

struct Graph;

// Maximum number of elements of one parameter, of a layer's output for one sample, and of all
// parameters of a network.
inline constexpr int64_t kMaxElements = int64_t{1} << 48;

// Throws an Error whose message begins with `name` if the shape has more than kMaxElements.
void require_size(const std::string& name, const Shape& shape);

// Sizes in elements, small enough that their sizes in bytes do not overflow.
struct NetworkSize {
  int64_t parameters = 0;
  int64_t trained = 0;        // number of these parameters that are trained
  std::string largest_layer;  // the layer with the largest number of parameters
  // Largest output of a layer for a micro-batch, or the input. Leaves out an output that may be
  // computed in parts: that of a dense layer before the loss.
  int64_t largest_output = 0;
  std::string largest_output_layer;  // the layer that has it, or "input"
};

// Returns the size of the network with `batch` rows. Throws a ConfigError that names the layer at
// which the sizes exceed any possible memory.
NetworkSize size_of(const Graph& graph, int64_t batch);

}  // namespace trireme::model
