// Forward: a warp, or a block, has a row of y. Backward: it has a position, and adds up its rows of
// all samples in order.
#include "ops/choose_layouts.h"
#include "ops/class_token.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// `positions` may be null.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    class_token_kernel(const T* x, const T* token, const T* positions, int64_t rows, int64_t length,
                       int64_t width, T* y) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  const int64_t sample = row / length, t = row % length;
  const T* from = t == 0 ? token : x + (sample * (length - 1) + t - 1) * width;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> values = to_float(load<N>(from + at));
    if (positions) {
      const Pack<float, N> added = to_float(load<N>(positions + t * width + at));
#pragma unroll
      for (int i = 0; i < N; ++i) values.values[i] += added.values[i];
    }
    store(y + row * width + at, from_float<T>(values));
  });
}

// `dx` and `dpositions` may be null.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    class_token_gradient_kernel(const T* dy, int64_t samples, int64_t length, int64_t width, T* dx,
                                float* dtoken, float* dpositions) {
  const int64_t t = row_of_thread();
  if (t >= length) return;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> sum{};
    for (int64_t sample = 0; sample < samples; ++sample) {
      const Pack<T, N> values = load<N>(dy + (sample * length + t) * width + at);
      if (dx && t > 0) store(dx + (sample * (length - 1) + t - 1) * width + at, values);
      const Pack<float, N> added = to_float(values);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.values[i] += added.values[i];
    }
    if (t == 0) store(dtoken + at, sum);
    if (dpositions) store(dpositions + t * width + at, sum);
  });
}

}  // namespace

Plan plan(const ClassTokenForward&, const ContextPtr&, Specs given) {
  using Op = ClassTokenForward;
  const Shape shape = given[Op::kY].shape;
  const int64_t rows = shape[0] * shape[1], length = shape[1], width = shape[2];
  return with_pack(given[Op::kY].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("class_token_forward", class_token_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kX), pointer<T>(args, Op::kToken),
                            pointer<T>(args, Op::kPositions), rows, length, width,
                            pointer<T>(args, Op::kY));
    });
  });
}

Plan plan(const ClassTokenBackward&, const ContextPtr&, Specs given) {
  using Op = ClassTokenBackward;
  const Shape shape = given[Op::kDy].shape;
  const int64_t samples = shape[0], length = shape[1], width = shape[2];
  return with_pack(given[Op::kDy].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(length, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("class_token_backward", class_token_gradient_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kDy), samples, length, width,
                            pointer<T>(args, Op::kDx), pointer<float>(args, Op::kDtoken),
                            pointer<float>(args, Op::kDpositions));
    });
  });
}

}  // namespace trireme::ops::cuda
