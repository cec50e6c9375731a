// Dynamic loss scaling for half precision (Micikevicius et al., arXiv:1710.03740): the gradients of
// loss * scale are computed, so that small ones do not underflow, and are divided by the scale in
// the update. If the gradients are not all finite, or too large for the update (see Update), it is
// skipped and the scale is halved.
// All decisions are made on the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

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

// Returns whether a step with this sum of squares (SumOfSquares) updates the parameters: not if it
// is infinite or NaN, nor if Update has made it negative.
constexpr bool is_applied(double squares) {
  return squares >= 0 && squares <= std::numeric_limits<double>::max();
}

// Runs after the update, and adjusts the scale. If the update with kSquares (f64 [1]) was applied,
// good_steps increases; after growth_steps such steps in a row the scale is doubled, up to 2^24. If
// it was skipped, the scale is halved, down to 1, `skipped` increases, and the optional
// kRunningStats, f32 [n], get the values of kRunningStatsBefore. kScale is read and written.
struct AdjustLossScale {
  enum Arg { kSquares, kScale, kRunningStats, kRunningStatsBefore, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t growth_steps = 2000;
};

// Returns the loss scale after a step. `applied` says whether the step has updated the parameters.
constexpr LossScale adjusted(const LossScale& before, bool applied, int32_t growth_steps) {
  constexpr float kMin = 1, kMax = 1 << 24;
  if (!applied) {
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
