// Which shapes an operation takes.
#pragma once

#include <span>

#include "ops/backend.h"

namespace trireme {

// Rows or columns that a window of `kernel` finds in `extent`; below 1 when it does not fit.
constexpr int64_t windows(int64_t extent, int64_t kernel, int64_t stride, int64_t padding,
                          int64_t dilation = 1) {
  const int64_t room = extent + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Throws Error naming the operation, the tensor, the shape it got and the one that would fit.
void check_shapes(const Op& op, std::span<const TensorSpec> specs);

}  // namespace trireme
