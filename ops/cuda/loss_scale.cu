#include "core/cuda/launch.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"
#include "ops/loss_scale.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

__global__ void scale_loss_kernel(const LossScale* scale, StepState* state) {
  state->loss_gradient_scale *= scale->scale;
}

__global__ void adjust_kernel(const double* squares, int32_t growth_steps, LossScale* scale) {
  *scale = adjusted(*scale, isfinite(*squares), growth_steps);
}

const trireme::cuda::Grid kOneThread{.blocks = dim3(1), .threads = dim3(1)};

}  // namespace

Plan plan(const ScaleLoss&, const ContextPtr&, Specs given) {
  return function_op(in_row_major(given), [](Stream& stream, Args args, void*) {
    trireme::cuda::launch("scale_loss", scale_loss_kernel, kOneThread, stream,
                          pointer<LossScale>(args, ScaleLoss::kScale),
                          pointer<StepState>(args, ScaleLoss::kState));
  });
}

Plan plan(const AdjustLossScale& op, const ContextPtr&, Specs given) {
  return function_op(in_row_major(given), [op](Stream& stream, Args args, void*) {
    trireme::cuda::launch("adjust_loss_scale", adjust_kernel, kOneThread, stream,
                          pointer<double>(args, AdjustLossScale::kSquares), op.growth_steps,
                          pointer<LossScale>(args, AdjustLossScale::kScale));
  });
}

}  // namespace trireme::ops::cuda
