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

// Padding never wins. kWorkspace remembers the winners for the backward pass: its spec is u8 with
// one extent that the plan chooses (ask with `unsized_workspace()`); absent in inference. Of equal
// values the first in row-major order wins.
struct MaxPoolForward {
  enum Arg { kX, kY, kWorkspace, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
};

// dx is zero where nothing won. kWorkspace has the spec that the forward plan chose.
struct MaxPoolBackward {
  enum Arg { kDy, kWorkspace, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  PoolGeometry geometry;
};

// The mean over the window: over its whole area with include_padding, else over what lies inside x.
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
