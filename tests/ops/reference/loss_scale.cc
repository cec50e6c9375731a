#include "ops/loss_scale.h"

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const ScaleLoss&, Specs specs) {
  return host_op(std::move(specs), [](Args args, void*) {
    pointer<StepState>(args, ScaleLoss::kState)->loss_gradient_scale *=
        loss_scale(args, ScaleLoss::kScale)->scale;
  });
}

Plan plan(const AdjustLossScale& op, Specs specs) {
  using O = AdjustLossScale;
  const int64_t stats = specs[O::kRunningStats].shape.elements();
  return host_op(std::move(specs), [=](Args args, void*) {
    const bool applied = is_applied(*in(args, O::kSquares));
    auto& scale = *pointer<LossScale>(args, O::kScale);
    scale = adjusted(scale, applied, op.growth_steps);
    for (int64_t i = 0; !applied && i < stats; ++i) {
      out(args, O::kRunningStats)[i] = in(args, O::kRunningStatsBefore)[i];
    }
  });
}

}  // namespace trireme::ops::reference
