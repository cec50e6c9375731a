// Pooling over windows of x [N, C, H, W] to y [N, C, OH, OW].
#pragma once

#include <array>
#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

struct PoolGeometry {
  std::array<int64_t, 2> kernel{2, 2};  // height, width
  std::array<int64_t, 2> stride{2, 2};
  std::array<int64_t, 2> padding{0, 0};
};

// Padding is never the maximum; among equal values, the first one in row-major order is. kWorkspace
// stores the positions of the maxima for the backward pass. It is u8 with one dimension whose size
// the plan chooses (request it with `unsized_workspace()`); it is absent in inference.
struct MaxPoolForward {
  enum Arg { kX, kY, kWorkspace, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
};

// dx is zero for elements that are not the maximum of any window. kWorkspace has the spec that the
// forward plan chose.
struct MaxPoolBackward {
  enum Arg { kDy, kWorkspace, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
};

// Computes the mean over each window: the sum divided by the area of the window if include_padding
// is set, otherwise by the part of the area that is inside x.
struct AveragePoolForward {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
  bool include_padding = true;
};

struct AveragePoolBackward {
  enum Arg { kDy, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
  bool include_padding = true;
};

}  // namespace trireme::ops
