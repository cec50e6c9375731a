// The plainest double-precision loops: one overload an operation, in the file named after its
// header. All tensors are row-major; shapes have been checked.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "ops/host_op.h"
#include "ops/shapes.h"
#include "ops/step_state.h"

namespace trireme::reference {

using Specs = std::vector<TensorSpec>;
using Plan = std::unique_ptr<OpPlan>;

// An argument as numbers.
inline const double* in(Args args, int arg) {
  return static_cast<const double*>(args[static_cast<size_t>(arg)]);
}
inline double* out(Args args, int arg) {
  return static_cast<double*>(args[static_cast<size_t>(arg)]);
}
inline const StepState& state(Args args, int arg) {
  return *static_cast<const StepState*>(args[static_cast<size_t>(arg)]);
}
inline const LossScale* loss_scale(Args args, int arg) {
  return static_cast<const LossScale*>(args[static_cast<size_t>(arg)]);
}

Plan plan(const Conv2dForward& op, Specs specs);
Plan plan(const Conv2dBackwardData& op, Specs specs);
Plan plan(const Conv2dBackwardWeights& op, Specs specs);
Plan plan(const DenseForward& op, Specs specs);
Plan plan(const DenseBackwardData& op, Specs specs);
Plan plan(const DenseBackwardWeights& op, Specs specs);
Plan plan(const ActivationForward& op, Specs specs);
Plan plan(const ActivationBackward& op, Specs specs);
Plan plan(const BatchNormStatistics& op, Specs specs);
Plan plan(const BatchNormForward& op, Specs specs);
Plan plan(const BatchNormInference& op, Specs specs);
Plan plan(const BatchNormBackwardSums& op, Specs specs);
Plan plan(const BatchNormBackward& op, Specs specs);
Plan plan(const LayerNormForward& op, Specs specs);
Plan plan(const LayerNormBackward& op, Specs specs);
Plan plan(const MaxPoolForward& op, Specs specs);
Plan plan(const MaxPoolBackward& op, Specs specs);
Plan plan(const AveragePoolForward& op, Specs specs);
Plan plan(const AveragePoolBackward& op, Specs specs);
Plan plan(const DropoutForward& op, Specs specs);
Plan plan(const DropoutBackward& op, Specs specs);
Plan plan(const Add& op, Specs specs);
Plan plan(const Concat& op, Specs specs);
Plan plan(const Split& op, Specs specs);
Plan plan(const Reorder& op, Specs specs);
Plan plan(const NormalizeInput& op, Specs specs);
Plan plan(const SoftmaxCrossEntropy& op, Specs specs);
Plan plan(const MeanSquaredError& op, Specs specs);
Plan plan(const SumOfSquares& op, Specs specs);
Plan plan(const SgdUpdate& op, Specs specs);
Plan plan(const AdamUpdate& op, Specs specs);
Plan plan(const ScaleLoss& op, Specs specs);
Plan plan(const AdjustLossScale& op, Specs specs);

double activate(Activation activation, double x);
// f' at x, where y = f(x).
double derivative(Activation activation, double x, double y);

}  // namespace trireme::reference
