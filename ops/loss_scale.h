// Dynamic loss scaling for half precision (Micikevicius et al., arXiv:1710.03740): the gradients of
// loss * scale are computed, so that small ones do not underflow, and are divided by the scale in
// the update. If the gradients are not all finite, the update is skipped and the scale is halved.
// All decisions are made on the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// Stored in device memory (16 bytes); part of the optimizer state.
struct LossScale {
  float scale = 65536;
  int32_t good_steps = 0;  // consecutive finite steps since the scale last changed
  int64_t skipped = 0;     // updates skipped since the start of the run
};

// Runs before the forward pass: state.loss_gradient_scale *= scale. kState is read and written.
struct ScaleLoss {
  enum Arg { kScale, kState, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Runs after the update, and adjusts the scale. If kSquares (f64 [1], see SumOfSquares) is finite,
// good_steps increases; after growth_steps such steps in a row the scale is doubled, up to 2^24. If
// it is not finite, the scale is halved, down to 1, and `skipped` increases. kScale is read and
// written.
struct AdjustLossScale {
  enum Arg { kSquares, kScale, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t growth_steps = 2000;
};

// Returns the loss scale after a step. `finite` says whether the gradients of the step were finite.
constexpr LossScale adjusted(const LossScale& before, bool finite, int32_t growth_steps) {
  constexpr float kMin = 1, kMax = 1 << 24;
  if (!finite) {
    return {
        .scale = std::max(before.scale / 2, kMin), .good_steps = 0, .skipped = before.skipped + 1};
  }
  LossScale after = before;
  if (++after.good_steps >= growth_steps) {
    after.scale = std::min(before.scale * 2, kMax);
    after.good_steps = 0;
  }
  return after;
}

}  // namespace trireme::ops
