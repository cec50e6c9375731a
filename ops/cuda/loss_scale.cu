#include <algorithm>

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

constexpr int64_t kStatsThreads = 256;

__global__ void adjust_kernel(const double* squares, int32_t growth_steps, LossScale* scale,
                              float* stats, const float* stats_before, int64_t count) {
  const bool applied = is_applied(*squares);
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i == 0) *scale = adjusted(*scale, applied, growth_steps);
  if (!applied && i < count) stats[i] = stats_before[i];
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
  using Op = AdjustLossScale;
  const int64_t stats = given[Op::kRunningStats].shape.elements();
  const int64_t blocks = std::max<int64_t>(1, (stats + kStatsThreads - 1) / kStatsThreads);
  const trireme::cuda::Grid grid{
      .blocks = dim3(static_cast<unsigned>(blocks)),
      .threads = dim3(static_cast<unsigned>(std::clamp<int64_t>(stats, 1, kStatsThreads)))};
  return function_op(in_row_major(given), [op, grid, stats](Stream& stream, Args args, void*) {
    trireme::cuda::launch("adjust_loss_scale", adjust_kernel, grid, stream,
                          pointer<double>(args, Op::kSquares), op.growth_steps,
                          pointer<LossScale>(args, Op::kScale),
                          pointer<float>(args, Op::kRunningStats),
                          pointer<float>(args, Op::kRunningStatsBefore), stats);
  });
}

}  // namespace trireme::ops::cuda
