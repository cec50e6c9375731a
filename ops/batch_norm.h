// Batch normalization per channel of x [N, C, ...] (Ioffe and Szegedy, arXiv:1502.03167), fused
// with the residual addition and the ReLU that usually follow:
//
//   y = relu?(gamma * (x - mean) * inv_std + beta + residual?)
//   inv_std = 1 / sqrt(var + epsilon)
//
// In training, mean and (biased) var are computed over the valid rows (StepState::valid_rows) of x.
// The remaining rows are padding: they are normalized in the same way, but do not contribute to
// statistics or gradients of parameters, and their own gradient is zero.
//
// For statistics over all ranks (synchronized batch norm), run BatchNormStatistics, all-reduce its
// kSums, then run BatchNormForward with kSums. In the backward pass, run BatchNormBackwardSums,
// all-reduce its kSums, then run BatchNormBackward with kSums. Without kSums, the forward and
// backward ops compute local sums in the same pass over memory.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// Computes kSums, f64 [2 * C + 1]: the sum of x and the sum of x^2 per channel, then the number of
// values per channel.
struct BatchNormStatistics {
  enum Arg { kX, kState, kSums, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Normalizes with the statistics of the batch and updates the running statistics. gamma, beta,
// running mean and var are f32 [C] (f64 in the reference). kSaved, of the same dtype, is [2 * C]:
// mean, then inv_std. kResidual and kSums are optional. running = (1 - momentum) * running +
// momentum * batch (with the unbiased variance), unless kRunningMean is absent or there are no
// values at all. With kSums, a rank without valid rows updates them as the others do.
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

// Normalizes with the running statistics instead of those of the batch. y may be x or the residual.
// kBeta and kRunningMean are optional and default to zero. Without both, the op is linear and also
// computes its own derivative, with dy as x.
struct BatchNormInference {
  enum Arg { kX, kResidual, kGamma, kBeta, kRunningMean, kRunningVar, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float epsilon = 1e-5f;
  bool relu = false;
};

// Computes kSums, f64 [2 * C + 1]: the sum of g and the sum of g * xhat per channel, then the
// count. xhat is (x - mean) * inv_std. Without relu, g is dy; with relu, it is dy where y > 0 and 0
// elsewhere.
struct BatchNormBackwardSums {
  enum Arg { kX, kY, kDy, kSaved, kState, kSums, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  bool relu = false;
};

// dgamma = sum(g * xhat) and dbeta = sum(g) are always sums over this rank's rows. dx is computed
// from kSums (over all ranks) if present, otherwise from local sums. kY is required with relu.
// kDresidual = g is optional. Either kDx or kDresidual may be dy, but not both. kGamma as in
// BatchNormForward.
struct BatchNormBackward {
  enum Arg { kX, kY, kDy, kGamma, kSaved, kSums, kState, kDx, kDresidual, kDgamma, kDbeta, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  bool relu = false;
};

}  // namespace trireme::ops
