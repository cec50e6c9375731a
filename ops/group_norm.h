// Group normalization (Wu and He, arXiv:1803.08494) of x [N, C, ...]. The channels of each sample
// are divided into `groups` groups of C / groups adjacent channels. Each group is normalized over
// its channels and all trailing dimensions:
//
//   y = gamma * (x - mean) / sqrt(var + epsilon) + beta
//
// with the biased variance. gamma and beta are [C]; if both are absent they are 1 and 0. kSaved is
// [N, groups, 2]: mean and 1 / sqrt(var + epsilon). One group is layer normalization over [C, ...];
// C groups are instance normalization.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// kSaved is absent in inference. y may be x.
struct GroupNormForward {
  enum Arg { kX, kGamma, kBeta, kY, kSaved, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int64_t groups = 1;
  float epsilon = 1e-5f;
};

// Rows beyond StepState::valid_rows do not contribute to dgamma and dbeta, and their dx is zero.
// dgamma and dbeta are both present or both absent. dx may be dy.
struct GroupNormBackward {
  enum Arg { kX, kDy, kGamma, kSaved, kState, kDx, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int64_t groups = 1;
};

}  // namespace trireme::ops
