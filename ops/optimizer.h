// Optimizer ops. All parameters are in one flat array, and so are their gradients and the optimizer
// state. An element has the same index in all arrays, independent of the layouts of the tensors.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/vectorized.h"
#include "ops/loss_scale.h"
#include "ops/op_info.h"
#include "ops/step_state.h"
#include "ops/update_rule.h"

namespace trireme::ops {

// Elements [begin, end) of the arrays, with their settings. Elements outside all ranges (padding)
// are not accessed. With slot_shift, a multiple of 4, slots hold only a part of the elements, as in
// ZeRO: those of element i are at i + slot_shift. Likewise gradient_shift for gradients.
struct UpdateRange {
  int64_t begin = 0;
  int64_t end = 0;
  float weight_decay = 0;
  float learning_rate_scale = 1;
  // Layer-wise rules only, for which a range is a tensor: if false, its trust ratio is 1.
  bool use_trust_ratio = true;
  int64_t slot_shift = 0;
  int64_t gradient_shift = 0;
};

// kSum, f64 [1], is the sum of x^2 over `ranges`. The order of summation depends only on the
// ranges. The sum is NaN or infinite if any element of `ranges` or `checked_ranges` is; apart from
// that, `checked_ranges` do not contribute to it.
struct SumOfSquares {
  enum Arg { kX, kSum, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  std::vector<UpdateRange> ranges;
  std::vector<UpdateRange> checked_ranges = {};
};

// kSums, f64 [ranges, 2], are the sums of squares of the parameters of each range and of their
// directions (see update_rule.h) in the Update that follows, which must have the same layer-wise
// rule, ranges and max_norm. The op reads the inputs of that Update and changes none of them. Sums
// are 0 where a range has no trust ratio, and if the Update will be skipped. They are accumulated
// in an order that depends only on the ranges.
struct TensorSquares {
  enum Arg { kParameters, kGradients, kSquares, kLossScale, kMetrics, kState, kSums, kSlots };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  UpdateRule rule = {};
  std::vector<UpdateRange> ranges = {};
  float max_norm = 0;
};

// kRatios, [ranges], are the trust ratios for the Update, from the sums of TensorSquares with the
// same rule and ranges, which may have been summed over ranks that have parts of the tensors.
struct TrustRatios {
  enum Arg { kSums, kState, kRatios, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  UpdateRule rule = {};
  std::vector<UpdateRange> ranges = {};
};

// Returns the factor that turns gradients of the sum of losses divided by state.labels into those
// of the mean loss: 0 if no label counts.
TRIREME_INLINE constexpr double label_correction(const StepState& state, double weight) {
  return weight > 0 ? static_cast<double>(state.labels) / weight : 0;
}

// What an update does with the gradients.
struct GradientScaling {
  bool is_skipped = false;  // nothing is updated
  bool overflows = false;   // the reason: a finite norm exceeds kMaxGradientNorm
  float factor = 1;         // of the gradients: inverse loss scale, label correction, clipping
};
// Returns the scaling for the arguments of an Update; the correction is label_correction() or 1.
template <class Rule>
TRIREME_INLINE constexpr GradientScaling gradient_scaling(float max_norm, const double* squares,
                                                          const LossScale* loss_scale,
                                                          double correction) {
  if (loss_scale && !is_applied(*squares)) return {.is_skipped = true};
  const double unscaled =
      loss_scale ? correction / static_cast<double>(loss_scale->scale) : correction;
  const double norm = squares ? std::sqrt(*squares) * unscaled : 0;
  if (max_norm > 0 && norm > max_norm) {
    return {.factor = static_cast<float>(unscaled * max_norm / norm)};
  }
  const bool overflows = loss_scale && norm > kMaxGradientNorm<Rule>;
  return {.is_skipped = overflows, .overflows = overflows, .factor = static_cast<float>(unscaled)};
}

// Updates all parameters by a rule (update_rule.h). kParameters and kGradients are f32 (f64 in the
// reference), as are kTrustRatios, which layer-wise rules require, and the slots of the rule, which
// are the last args. kLowPrecision, optional, receives a copy of the updated parameters in its
// dtype. kAverage, optional, f32, is their moving average. Ranges are disjoint and ascending.
//
// With max_norm > 0, gradients are first scaled by min(1, max_norm / sqrt(kSquares)). With the
// optional kLossScale (see loss_scale.h), gradients and kSquares are those of the scaled loss:
// gradients are divided by the scale first, clipping uses the norm after that division, and the
// update is skipped if kSquares is not finite, or if the norm left exceeds kMaxGradientNorm;
// then kSquares is negated, so that it says why. kSquares is required in both cases. The number of
// the step is StepState::step + 1 - LossScale::skipped.
//
// With the optional kMetrics [kMetricCount], gradients and kSquares are those of the sum of losses
// divided by StepState::labels. They are multiplied by label_correction() first.
struct Update {
  enum Arg {
    kParameters,
    kGradients,
    kSquares,
    kLossScale,
    kMetrics,
    kState,
    kLowPrecision,
    kTrustRatios,
    kAverage,
    kSlots
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  UpdateRule rule = {};
  std::vector<UpdateRange> ranges = {};
  float max_norm = 0;
  MovingAverage average = {};  // for kAverage
};

}  // namespace trireme::ops
