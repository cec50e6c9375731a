// Batch normalization per channel of x [N, C, ...] (Ioffe and Szegedy, arXiv:1502.03167), with the
// residual addition and the ReLU that usually follow folded in:
//
//   y = relu?( gamma * (x - mean) * inv_std + beta + residual? ),  inv_std = 1 / sqrt(var +
//   epsilon)
//
// In training mean and var (biased) are those of the valid rows (StepState::valid_rows) of x; rows
// beyond are normalized alike but count nowhere, and get a zero gradient.
//
// Statistics over several ranks: BatchNormStatistics, an all-reduce of its kSums, BatchNormForward
// with kSums; BatchNormBackwardSums, an all-reduce of its kSums, BatchNormBackward with kSums.
// Without kSums the forward and backward ops compute their own in the same pass over memory.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// kSums is f64 [2 * C + 1]: sum of x, sum of x^2 per channel, then the number of values per
// channel.
struct BatchNormStatistics {
  enum Arg { kX, kState, kSums, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// gamma, beta, running mean and var: f32 [C] (f64 in the reference). kSaved, same dtype, [2 * C]:
// mean, then inv_std. kResidual and kSums are optional. running = (1 - momentum) * running +
// momentum * batch (unbiased variance), unless valid_rows is 0 or kRunningMean is absent.
struct BatchNormForward {
  enum Arg {
    kX,
    kResidual,
    kGamma,
    kBeta,
    kSums,
    kState,
    kRunningMean,
    kRunningVar,
    kY,
    kSaved,
    kArgs
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float epsilon = 1e-5f;
  float momentum = 0.1f;
  bool relu = false;
};

// With the running statistics in place of the batch's. y may be x or the residual. kBeta and
// kRunningMean are optional, zero where absent: without both it is also its own derivative, with dy
// as x.
struct BatchNormInference {
  enum Arg { kX, kResidual, kGamma, kBeta, kRunningMean, kRunningVar, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float epsilon = 1e-5f;
  bool relu = false;
};

// g = dy where y > 0 else 0 (relu), else dy. kSums is f64 [2 * C + 1]: sum of g, sum of g * xhat,
// count.
struct BatchNormBackwardSums {
  enum Arg { kX, kY, kDy, kSaved, kState, kSums, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  bool relu = false;
};

// dgamma = sum(g * xhat), dbeta = sum(g) over this rank's rows, always; dx from kSums where given
// (over all ranks), else from the same sums. kY only with relu; kDresidual = g, optional; kDx and
// kDresidual may each be dy, not both. kGamma as forward.
struct BatchNormBackward {
  enum Arg { kX, kY, kDy, kGamma, kSaved, kSums, kState, kDx, kDresidual, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  bool relu = false;
};

}  // namespace trireme::ops
