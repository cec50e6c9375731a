// Chooses layouts for ops that do not require particular ones.
#pragma once

#include <span>
#include <vector>

#include "ops/op.h"

namespace trireme::ops {

// Returns the specs with row-major layout for all present tensors.
inline std::vector<TensorSpec> in_row_major(std::span<const TensorSpec> given) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  for (TensorSpec& spec : specs) {
    if (!is_absent(spec)) spec.layout = Layout::row_major();
  }
  return specs;
}

// Returns the specs, which have the same shape, with the first layout that is not any(), or
// row-major if there is none.
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
