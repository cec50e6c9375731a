// Layer normalization (Ba, Kiros, Hinton, arXiv:1607.06450) of each row of x [rows, features]:
//
//   y = gamma * (x - mean) / sqrt(var + epsilon) + beta
//
// gamma and beta are [features]. kSaved is [rows, 2]: mean and 1 / sqrt(var + epsilon). If not
// centered, this is RMS normalization (Zhang and Sennrich, arXiv:1910.07467), with 0 in place of
// the mean:
//
//   y = gamma * x / sqrt(mean of x^2 + epsilon)
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// kBeta is optional, kSaved is absent in inference.
struct LayerNormForward {
  enum Arg { kX, kGamma, kBeta, kY, kSaved, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float epsilon = 1e-5f;
  bool centered = true;
};

// dx may be dy. kDbeta is optional.
struct LayerNormBackward {
  enum Arg { kX, kDy, kGamma, kSaved, kDx, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  bool centered = true;
};

}  // namespace trireme::ops
