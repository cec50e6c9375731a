#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"
#include "ops/swiglu.h"

namespace trireme::ops::cuda {
namespace {

__device__ float logistic(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    swiglu_kernel(const T* x, int64_t rows, int64_t width, T* y) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  x += row * 2 * width;
  each_pack<N>(width, [&](int64_t at) {
    const Pack<float, N> gates = to_float(load<N>(x + at));
    Pack<float, N> values = to_float(load<N>(x + width + at));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values.values[i] *= gates.values[i] * logistic(gates.values[i]);
    }
    store(y + row * width + at, from_float<T>(values));
  });
}

// dx may be x.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    swiglu_gradient_kernel(const T* x, const T* dy, int64_t rows, int64_t width, T* dx) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  x += row * 2 * width;
  dx += row * 2 * width;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> gates = to_float(load<N>(x + at));
    Pack<float, N> values = to_float(load<N>(x + width + at));
    const Pack<float, N> g = to_float(load<N>(dy + row * width + at));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float gate = gates.values[i], sigmoid = logistic(gate);
      gates.values[i] = g.values[i] * values.values[i] * sigmoid * (1 + gate * (1 - sigmoid));
      values.values[i] = g.values[i] * gate * sigmoid;
    }
    store(dx + at, from_float<T>(gates));
    store(dx + width + at, from_float<T>(values));
  });
}

}  // namespace

Plan plan(const SwigluForward&, const ContextPtr&, Specs given) {
  using Op = SwigluForward;
  const int64_t rows = given[Op::kY].shape[0], width = given[Op::kY].shape[1];
  return with_pack(given[Op::kX].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("swiglu_forward", swiglu_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kX), rows, width, pointer<T>(args, Op::kY));
    });
  });
}

Plan plan(const SwigluBackward&, const ContextPtr&, Specs given) {
  using Op = SwigluBackward;
  const int64_t rows = given[Op::kDy].shape[0], width = given[Op::kDy].shape[1];
  return with_pack(given[Op::kX].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch("swiglu_backward", swiglu_gradient_kernel<T, N>, grid, stream,
                            pointer<T>(args, Op::kX), pointer<T>(args, Op::kDy), rows, width,
                            pointer<T>(args, Op::kDx));
    });
  });
}

}  // namespace trireme::ops::cuda
