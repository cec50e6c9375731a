// Layer normalization (Ba, Kiros, Hinton, arXiv:1607.06450) of each row of x [rows, features]:
//
//   y = gamma * (x - mean) / sqrt(var + epsilon) + beta
//
// gamma and beta are [features]. kSaved is [rows, 2]: mean and 1 / sqrt(var + epsilon).
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// kSaved is absent in inference.
struct LayerNormForward {
  enum Arg { kX, kGamma, kBeta, kY, kSaved, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float epsilon = 1e-5f;
};

// dx may be dy.
struct LayerNormBackward {
  enum Arg { kX, kDy, kGamma, kSaved, kDx, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

}  // namespace trireme::ops
