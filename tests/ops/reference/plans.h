// Declares plan() of the reference for every op. Each overload is defined in the file named after
// the header of the op. All tensors are row-major; shapes have been checked.
#pragma once

#include <memory>
#include <vector>

#include "ops/backend.h"
#include "ops/function_op.h"
#include "ops/step_state.h"

namespace trireme::ops::reference {

using Specs = std::vector<TensorSpec>;
using Plan = std::unique_ptr<OpPlan>;

// Access to arguments with their types.
inline const double* in(Args args, int arg) { return pointer<const double>(args, arg); }
inline double* out(Args args, int arg) { return pointer<double>(args, arg); }
inline const StepState& state(Args args, int arg) { return *pointer<const StepState>(args, arg); }
inline const LossScale* loss_scale(Args args, int arg) {
  return pointer<const LossScale>(args, arg);
}

#define TRIREME_OP(Descriptor) Plan plan(const Descriptor& op, Specs specs);
#include "ops/ops.def"

double activate(Activation activation, double x);
// Returns f'(x), given x and y = f(x).
double derivative(Activation activation, double x, double y);

}  // namespace trireme::ops::reference
