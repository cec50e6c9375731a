// The plainest double-precision loops: one overload an op, in the file named after its
// header. All tensors are row-major; shapes have been checked.
#pragma once

#include <memory>
#include <vector>

#include "ops/backend.h"
#include "ops/function_op.h"
#include "ops/step_state.h"

namespace trireme::ops::reference {

using Specs = std::vector<TensorSpec>;
using Plan = std::unique_ptr<OpPlan>;

// An argument as numbers.
inline const double* in(Args args, int arg) { return pointer<const double>(args, arg); }
inline double* out(Args args, int arg) { return pointer<double>(args, arg); }
inline const StepState& state(Args args, int arg) { return *pointer<const StepState>(args, arg); }
inline const LossScale* loss_scale(Args args, int arg) {
  return pointer<const LossScale>(args, arg);
}

#define TRIREME_OP(Descriptor) Plan plan(const Descriptor& op, Specs specs);
#include "ops/ops.def"

double activate(Activation activation, double x);
// f' at x, where y = f(x).
double derivative(Activation activation, double x, double y);

}  // namespace trireme::ops::reference
