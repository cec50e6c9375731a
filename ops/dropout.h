// Inverted dropout (Srivastava et al., JMLR 15, 2014): y = keep ? x / (1 - rate) : 0.
//
// x is [N, ...]. The mask is not stored but recomputed from Random(seed, kDropout, stream) with
//   stream = mix64(layer) + step, index = sample * elements_per_sample + i,
// where sample = StepState::place_of(row), and i is the position of the element within its sample
// in channels-last order (for [C, H, W]: (h * W + w) * C + c). An element is retained if
// uniform_at(index) >= rate. Therefore the mask does not depend on the layout, on how the batch is
// split over ranks, or on samples that were skipped.
#pragma once

#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// y may be x.
struct DropoutForward {
  enum Arg { kX, kState, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float rate = 0.5f;
  uint64_t layer = 0;  // distinguishes the dropout layers of a network
};

// dx may be dy.
struct DropoutBackward {
  enum Arg { kDy, kState, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float rate = 0.5f;
  uint64_t layer = 0;
};

}  // namespace trireme::ops
