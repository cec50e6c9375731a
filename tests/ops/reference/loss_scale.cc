#include "ops/loss_scale.h"

#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const ScaleLoss&, Specs specs) {
  return host_op(std::move(specs), [](Args args, void*) {
    pointer<StepState>(args, ScaleLoss::kState)->loss_gradient_scale *=
        loss_scale(args, ScaleLoss::kScale)->scale;
  });
}

Plan plan(const AdjustLossScale& op, Specs specs) {
  return host_op(std::move(specs), [=](Args args, void*) {
    const bool finite = std::isfinite(*in(args, AdjustLossScale::kSquares));
    auto& scale = *pointer<LossScale>(args, AdjustLossScale::kScale);
    scale = adjusted(scale, finite, op.growth_steps);
  });
}

}  // namespace trireme::ops::reference
