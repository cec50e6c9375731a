// Dynamic loss scaling for half precision (Micikevicius et al., arXiv:1710.03740): gradients are
// computed of loss * scale, so that small ones do not vanish, and divided by the scale in the
// update. A sum of gradients that is not finite skips the update and halves the scale. All of it is
// decided on the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

// Lives in device memory, 16 bytes; part of the optimizer's state.
struct LossScale {
  float scale = 65536;
  int32_t good_steps = 0;  // since the scale last changed
  int64_t skipped = 0;     // updates since the run began
};

// Before forward: state.loss_gradient_scale *= scale. kState is both read and written.
struct ScaleLoss {
  enum Arg { kScale, kState, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// After the update. kSquares (f64 [1], see SumOfSquares) finite: one more good step, and at
// growth_steps of them in a row the scale doubles, up to 2^24; not finite: the scale halves, down
// to 1, and skipped grows. kScale is both read and written.
struct AdjustLossScale {
  enum Arg { kSquares, kScale, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int32_t growth_steps = 2000;
};

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
