// Group normalization (Wu and He, arXiv:1803.08494) of x [N, C, ...]. The channels of each sample
// are divided into `groups` ranges of C / groups neighbors, and each range is normalized over its
// channels and all that follows them:
//
//   y = gamma * (x - mean) / sqrt(var + epsilon) + beta
//
// with the biased variance. gamma, beta [C], both absent: 1 and 0; kSaved [N, groups, 2]: mean and
// 1 / sqrt(var + epsilon). One group is layer normalization over [C, ...], C groups are instance
// normalization.
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

// Rows beyond StepState::valid_rows add nothing to dgamma and dbeta and get a dx of zero. dgamma
// and dbeta are both absent where they are not wanted. dx may be dy.
struct GroupNormBackward {
  enum Arg { kX, kDy, kGamma, kSaved, kState, kDx, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int64_t groups = 1;
};

}  // namespace trireme::ops
