// One update of all parameters, which lie in one flat array like their gradients and the
// optimizer's state: the same element everywhere at the same index, whatever the layouts of the
// tensors inside.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op_info.h"

namespace trireme {

// Elements [begin, end) of the arrays. What no range covers (padding) is left alone.
struct UpdateRange {
  int64_t begin = 0;
  int64_t end = 0;
  float weight_decay = 0;
  float learning_rate_scale = 1;
};

// sum = sum of x^2 over the ranges, f64 [1], in an order that depends on nothing but the ranges.
// It is finite only where all that it covers is; what is merely watched adds nothing else to it.
struct SumOfSquares {
  enum Arg { kX, kSum, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  std::vector<UpdateRange> ranges;
  std::vector<UpdateRange> watched = {};
};

// With max_norm > 0 gradients are first scaled by min(1, max_norm / sqrt(kSquares)). kParameters
// and kGradients are f32 (f64 in the reference); kLowPrecision, optional, gets a copy of the
// updated parameters in its own dtype. Ranges are disjoint and ascending.
//
// With kLossScale (see loss_scale.h), optional, gradients and kSquares are those of the scaled
// loss: gradients are divided by the scale before all else, clipping goes by the norm after that,
// and where kSquares is not finite nothing is written at all. kSquares is needed for either.
struct UpdateCommon {
  std::vector<UpdateRange> ranges;
  float max_norm = 0;
};

// Stochastic gradient descent as PyTorch writes it:
//   g += weight_decay * p;  v = momentum * v + g;  p -= learning_rate * (nesterov ? g + momentum *
//   v : v)
// kVelocity is absent when momentum is 0; it starts as zeros.
struct SgdUpdate : UpdateCommon {
  enum Arg {
    kParameters,
    kGradients,
    kVelocity,
    kSquares,
    kLossScale,
    kState,
    kLowPrecision,
    kArgs
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float momentum = 0;
  bool nesterov = false;
};

// Adam (Kingma and Ba, arXiv:1412.6980) and, decoupled, AdamW (Loshchilov and Hutter,
// arXiv:1711.05101). Bias correction uses t = StepState::step + 1 - LossScale::skipped.
struct AdamUpdate : UpdateCommon {
  enum Arg {
    kParameters,
    kGradients,
    kMoment1,
    kMoment2,
    kSquares,
    kLossScale,
    kState,
    kLowPrecision,
    kArgs
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  bool decoupled = false;
};

}  // namespace trireme
