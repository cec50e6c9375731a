// The update of all parameters, which lie in one flat array like their gradients and the
// optimizer's state: the same element everywhere at the same index, whatever the layouts of the
// tensors inside.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op_info.h"
#include "ops/update_rule.h"

namespace trireme::ops {

// Elements [begin, end) of the arrays. What no range covers (padding) is left alone.
struct UpdateRange {
  int64_t begin = 0;
  int64_t end = 0;
  float weight_decay = 0;
  float learning_rate_scale = 1;
  // To a layer-wise rule a range is a tensor: whether it has a trust ratio, or that is 1.
  bool adapts = true;
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

// The trust ratio of each range, [ranges], for an Update by the same layer-wise rule with the same
// ranges and max_norm, which comes next: TrustRatios reads what that reads and changes none of it.
// Where that will write nothing, ratios are 1. Norms are added up in double precision, in an
// order that depends on nothing but the ranges.
struct TrustRatios {
  enum Arg { kParameters, kGradients, kSquares, kLossScale, kState, kRatios, kSlots };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  UpdateRule rule = {};
  std::vector<UpdateRange> ranges = {};
  float max_norm = 0;
};

// One update of all parameters by a rule (update_rule.h). kParameters and kGradients are f32 (f64
// in the reference), as are kTrustRatios, which a layer-wise rule needs, and the rule's slots, the
// last args; kLowPrecision, optional, gets a copy of the updated parameters in its own dtype, and
// kAverage, optional, f32 too, follows them. Ranges are disjoint and ascending.
//
// With max_norm > 0 gradients are first scaled by min(1, max_norm / sqrt(kSquares)). With
// kLossScale (see loss_scale.h), optional, gradients and kSquares are those of the scaled loss:
// gradients are divided by the scale before all else, clipping goes by the norm after that, and
// where kSquares is not finite nothing is written at all. kSquares is needed for either. The number
// of a step is StepState::step + 1 - LossScale::skipped.
struct Update {
  enum Arg {
    kParameters,
    kGradients,
    kSquares,
    kLossScale,
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
  MovingAverage average = {};  // of kAverage
};

}  // namespace trireme::ops
