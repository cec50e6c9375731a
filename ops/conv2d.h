// Two-dimensional convolution (cross-correlation, as in other frameworks).
//
//   x [N, C, H, W], weight [O, C / groups, KH, KW], bias [O], y [N, O, OH, OW]
//   OH = floor((H + 2 * padding - dilation * (KH - 1) - 1) / stride) + 1; OW likewise.
#pragma once

#include <array>
#include <cstdint>

#include "ops/activation.h"
#include "ops/op_info.h"

namespace trireme::ops {

struct Conv2dGeometry {
  std::array<int64_t, 2> stride{1, 1};  // height, width
  std::array<int64_t, 2> padding{0, 0};
  std::array<int64_t, 2> dilation{1, 1};
  int64_t groups = 1;
};

// y = activation(conv(x, weight) + bias). kBias is optional.
struct Conv2dForward {
  enum Arg { kX, kWeight, kBias, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Conv2dGeometry geometry;
  Activation activation = Activation::kNone;  // must be kNone or have derivative_uses_output
};

// Computes the gradient of x.
struct Conv2dBackwardData {
  enum Arg { kDy, kWeight, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Conv2dGeometry geometry;
};

// Computes the gradients of weight and bias. kDbias is optional.
struct Conv2dBackwardWeights {
  enum Arg { kX, kDy, kDweight, kDbias, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Conv2dGeometry geometry;
};

}  // namespace trireme::ops
