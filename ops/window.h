// Windows that slide over images: what convolutions and pools have in common.
#pragma once

#include <array>
#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// Rows or columns that a window of `kernel` finds in `extent`; below 1 when it does not fit.
constexpr int64_t windows(int64_t extent, int64_t kernel, int64_t stride, int64_t padding,
                          int64_t dilation = 1) {
  const int64_t room = extent + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Refuses y unless it is [N, channels, OH, OW], an element for each window in x [N, C, H, W].
void check_windows(const Checker& c, int x, int y, int64_t channels,
                   const std::array<int64_t, 2>& kernel, const std::array<int64_t, 2>& stride,
                   const std::array<int64_t, 2>& padding,
                   const std::array<int64_t, 2>& dilation = {1, 1});

}  // namespace trireme::ops
