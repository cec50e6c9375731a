// Sliding windows over images, for convolutions and pools.
#pragma once

#include <array>
#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// Returns the number of positions of a window of size `kernel` in a dimension of size `extent`,
// which is also the size of the output; less than 1 if the window does not fit.
constexpr int64_t windows(int64_t extent, int64_t kernel, int64_t stride, int64_t padding,
                          int64_t dilation = 1) {
  const int64_t range = extent + 2 * padding - dilation * (kernel - 1) - 1;
  return range < 0 ? 0 : range / stride + 1;
}

// Checks that y is [N, channels, OH, OW] for the windows over x [N, C, H, W]. Throws Error if it is
// not.
void check_windows(const Checker& c, int x, int y, int64_t channels,
                   const std::array<int64_t, 2>& kernel, const std::array<int64_t, 2>& stride,
                   const std::array<int64_t, 2>& padding,
                   const std::array<int64_t, 2>& dilation = {1, 1});

}  // namespace trireme::ops
