#include "ops/loss_scale.h"

#include <cmath>

#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {

Plan plan(const ScaleLoss&, const EnginePtr&, Specs given) {
  return host_op(in_row_major(given), [](Args args, void*) {
    pointer<StepState>(args, ScaleLoss::kState)->loss_gradient_scale *=
        pointer<const LossScale>(args, ScaleLoss::kScale)->scale;
  });
}

Plan plan(const AdjustLossScale& op, const EnginePtr&, Specs given) {
  return host_op(in_row_major(given), [op](Args args, void*) {
    const double squares = *pointer<const double>(args, AdjustLossScale::kSquares);
    auto& scale = *pointer<LossScale>(args, AdjustLossScale::kScale);
    scale = adjusted(scale, std::isfinite(squares), op.growth_steps);
  });
}

}  // namespace trireme::ops::cpu
