// Fully connected layer: x [N, I], weight [O, I], bias [O], y [N, O].
#pragma once

#include "ops/activation.h"
#include "ops/op_info.h"

namespace trireme::ops {

// y = activation(z), z = x * weight^T + bias. kBias is optional. kZ [N, O], if present, receives z;
// training needs it if the activation does not have derivative_uses_output.
struct DenseForward {
  enum Arg { kX, kWeight, kBias, kY, kZ, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Activation activation = Activation::kNone;
};

// dx = (dy * weight) * f', the derivative of the activation that has computed x. kSaved [N, I],
// which is present if there is an activation, is as in ActivationBackward.
struct DenseBackwardData {
  enum Arg { kDy, kWeight, kDx, kSaved, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  Activation activation = Activation::kNone;
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
