// Layouts for the tensors of an operation that asks nothing special of them.
#pragma once

#include <span>
#include <vector>

#include "ops/op.h"

namespace trireme::ops {

// Every tensor that is present in row-major order.
inline std::vector<TensorSpec> in_row_major(std::span<const TensorSpec> given) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  for (TensorSpec& spec : specs) {
    if (!is_absent(spec)) spec.layout = Layout::row_major();
  }
  return specs;
}

// All tensors, of one shape, in the layout of the first that has one.
inline std::vector<TensorSpec> in_one_layout(std::span<const TensorSpec> given) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  Layout layout = Layout::any();
  for (const TensorSpec& spec : specs) {
    if (layout.is_any()) layout = spec.layout;
  }
  if (layout.is_any()) layout = Layout::row_major();
  for (TensorSpec& spec : specs) spec.layout = layout;
  return specs;
}

}  // namespace trireme::ops
