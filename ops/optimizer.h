// One update of all parameters, which lie in one flat array like their gradients and the
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

// One update of all parameters by a rule (update_rule.h). kParameters and kGradients are f32 (f64
// in the reference), as are the rule's slots, the last args; kLowPrecision, optional, gets a copy
// of the updated parameters in its own dtype. Ranges are disjoint and ascending.
//
// With max_norm > 0 gradients are first scaled by min(1, max_norm / sqrt(kSquares)). With
// kLossScale (see loss_scale.h), optional, gradients and kSquares are those of the scaled loss:
// gradients are divided by the scale before all else, clipping goes by the norm after that, and
// where kSquares is not finite nothing is written at all. kSquares is needed for either. The number
// of a step is StepState::step + 1 - LossScale::skipped.
struct Update {
  enum Arg { kParameters, kGradients, kSquares, kLossScale, kState, kLowPrecision, kSlots };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  UpdateRule rule = {};
  std::vector<UpdateRange> ranges = {};
  float max_norm = 0;
};

}  // namespace trireme::ops
