// Fully connected layer: x [N, I], weight [O, I], bias [O], y [N, O].
#pragma once

#include "ops/activation.h"
#include "ops/op_info.h"

namespace trireme::ops {

// y = activation(x * weight^T + bias). kBias is optional.
struct DenseForward {
  enum Arg { kX, kWeight, kBias, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Activation activation = Activation::kNone;  // must be kNone or have derivative_uses_output
};

// dx = dy * weight.
struct DenseBackwardData {
  enum Arg { kDy, kWeight, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;
};

// dweight = dy^T * x, dbias = column sums of dy. kDbias is optional. With `accumulate`, both are
// added to what the memory holds.
struct DenseBackwardWeights {
  enum Arg { kX, kDy, kDweight, kDbias, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  bool accumulate = false;
};

}  // namespace trireme::ops
