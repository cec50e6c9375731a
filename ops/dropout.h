// Dropout (Srivastava et al., JMLR 15, 2014), inverted: y = keep ? x / (1 - rate) : 0.
//
// x [N, ...]. The mask is not stored but computed again, from Random(seed, kDropout, stream) with
//   stream = mix64(layer) + step, index = sample * elements_per_sample + i,
// where sample = StepState::first_sample + row and i counts the sample's elements in channels-last
// order
// ([C, H, W]: (h * W + w) * C + c). An element is kept where uniform_at(index) >= rate. So the mask
// depends neither on the layout nor on how the batch is split over ranks.
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
  uint64_t layer = 0;  // tells the network's dropout layers apart
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
