#include "ops/loss_scale.h"

#include <algorithm>

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
  using Op = AdjustLossScale;
  const int64_t stats = given[Op::kRunningStats].shape.elements();
  return host_op(in_row_major(given), [op, stats](Args args, void*) {
    const bool applied = is_applied(*pointer<const double>(args, Op::kSquares));
    auto& scale = *pointer<LossScale>(args, Op::kScale);
    scale = adjusted(scale, applied, op.growth_steps);
    if (applied || stats == 0) return;
    std::copy_n(pointer<const float>(args, Op::kRunningStatsBefore), stats,
                pointer<float>(args, Op::kRunningStats));
  });
}

}  // namespace trireme::ops::cpu
