// Forward: a warp, or a block, has a sequence. Backward: it has a row of dx.
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"
#include "ops/pool_tokens.h"

namespace trireme::ops::cuda {
namespace {

__device__ float share_of(int64_t count) {
  return count > 0 ? 1.0f / static_cast<float>(count) : 0.0f;
}

// `lengths` may be null.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    pool_tokens_kernel(const T* x, const int32_t* lengths, TokenRange range, int64_t samples,
                       int64_t length, int64_t width, T* y) {
  const int64_t sample = row_of_thread();
  if (sample >= samples) return;
  const int64_t end = range.end(lengths ? int64_t{lengths[sample]} : length);
  const float share = share_of(end - range.first);
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> sum{};
    for (int64_t t = range.first; t < end; ++t) {
      const Pack<float, N> values = to_float(load<N>(x + (sample * length + t) * width + at));
#pragma unroll
      for (int i = 0; i < N; ++i) sum.values[i] += values.values[i];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum.values[i] *= share;
    store(y + sample * width + at, from_float<T>(sum));
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    pool_tokens_gradient_kernel(const T* dy, const int32_t* lengths, TokenRange range, int64_t rows,
                                int64_t length, int64_t width, T* dx) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  const int64_t sample = row / length, t = row % length;
  const int64_t end = range.end(lengths ? int64_t{lengths[sample]} : length);
  const bool read = t >= range.first && t < end;
  const float share = share_of(end - range.first);
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> values{};
    if (read) values = to_float(load<N>(dy + sample * width + at));
#pragma unroll
    for (int i = 0; i < N; ++i) values.values[i] *= share;
    store(dx + row * width + at, from_float<T>(values));
  });
}

}  // namespace

Plan plan(const PoolTokensForward& op, const ContextPtr&, Specs given) {
  using Op = PoolTokensForward;
  const Shape shape = given[Op::kX].shape;
  const int64_t samples = shape[0], length = shape[1], width = shape[2];
  return with_pack(given[Op::kX].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(samples, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("pool_tokens_forward", pool_tokens_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kX), pointer<int32_t>(args, Op::kLengths),
                            op.range, samples, length, width, pointer<T>(args, Op::kY));
    });
  });
}

Plan plan(const PoolTokensBackward& op, const ContextPtr&, Specs given) {
  using Op = PoolTokensBackward;
  const Shape shape = given[Op::kDx].shape;
  const int64_t rows = shape[0] * shape[1], length = shape[1], width = shape[2];
  return with_pack(given[Op::kDx].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("pool_tokens_backward", pool_tokens_gradient_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kDy), pointer<int32_t>(args, Op::kLengths),
                            op.range, rows, length, width, pointer<T>(args, Op::kDx));
    });
  });
}

}  // namespace trireme::ops::cuda
