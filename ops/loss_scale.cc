#include "ops/loss_scale.h"

#include "ops/step_state.h"

namespace trireme::ops {

const OpInfo ScaleLoss::kInfo{.name = "scale_loss",
                              .args = {{"loss scale", Use::kIn}, {"state", Use::kInOut}}};
void ScaleLoss::check(const Checker& c) const {
  c.is_struct<LossScale>(kScale);
  c.is_struct<StepState>(kState);
}

const OpInfo AdjustLossScale::kInfo{.name = "adjust_loss_scale",
                                    .args = {{"sum of squares", Use::kIn},
                                             {"loss scale", Use::kInOut},
                                             {"running statistics", Use::kInOut, kOptional},
                                             {"running statistics before", Use::kIn, kOptional}}};
void AdjustLossScale::check(const Checker& c) const {
  const int64_t steps = growth_steps;
  c.at_least(1, {&steps, 1}, "growth steps");
  c.is(kSquares, {1});
  c.is_struct<LossScale>(kScale);
  if (c.present(kRunningStats)) c.needs(kRunningStatsBefore, c.shape(kRunningStats));
}

}  // namespace trireme::ops
