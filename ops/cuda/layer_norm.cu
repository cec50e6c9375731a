#include <vector>

#include "ops/choose_layouts.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/context.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"
#include "ops/layer_norm.h"

namespace trireme::ops::cuda {
namespace {

// One warp or block per row, so that the row stays in its cache between passes. The mean (0 unless
// centered) is computed from differences to the first value, so that no precision is lost if it is
// large.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    forward_kernel(const T* x, const float* gamma, const float* beta, int64_t rows,
                   int64_t features, float epsilon, bool centered, T* y, float* saved) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  x += row * features;
  const auto n = static_cast<float>(features);
  float mean = 0;
  if (centered) {
    const float first = to_float(x[0]);
    float sum = 0;
    each_pack<N>(features, [&](int64_t at) {
      const Pack<float, N> values = to_float(load<N>(x + at));
#pragma unroll
      for (int i = 0; i < N; ++i) sum += values.values[i] - first;
    });
    mean = first + row_reduce(sum, Plus()) / n;
  }
  float squares = 0;
  each_pack<N>(features, [&](int64_t at) {
    const Pack<float, N> values = to_float(load<N>(x + at));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float difference = values.values[i] - mean;
      squares += difference * difference;
    }
  });
  const float inv_std = 1 / sqrtf(row_reduce(squares, Plus()) / n + epsilon);
  each_pack<N>(features, [&](int64_t at) {
    Pack<float, N> values = to_float(load<N>(x + at));
    const Pack<float, N> scale = load<N>(gamma + at);
    Pack<float, N> shift{};
    if (beta) shift = load<N>(beta + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values.values[i] = (values.values[i] - mean) * inv_std * scale.values[i] + shift.values[i];
    }
    store(y + row * features + at, from_float<T>(values));
  });
  if (saved && threadIdx.x == 0) {
    saved[2 * row] = mean;
    saved[2 * row + 1] = inv_std;
  }
}

// dx may be dy.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    backward_kernel(const T* x, const T* dy, const float* gamma, const float* saved, int64_t rows,
                    int64_t features, bool centered, T* dx) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  x += row * features;
  dy += row * features;
  const float mean = saved[2 * row], inv_std = saved[2 * row + 1];
  // Calls f(at, xhat, g = dy * gamma).
  const auto each = [&](auto f) {
    each_pack<N>(features, [&](int64_t at) {
      Pack<float, N> xhat = to_float(load<N>(x + at)), g = to_float(load<N>(dy + at));
      const Pack<float, N> scale = load<N>(gamma + at);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat.values[i] = (xhat.values[i] - mean) * inv_std;
        g.values[i] *= scale.values[i];
      }
      f(at, xhat, g);
    });
  };
  float sum = 0, product = 0;
  each([&](int64_t, const Pack<float, N>& xhat, const Pack<float, N>& g) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sum += g.values[i];
      product += g.values[i] * xhat.values[i];
    }
  });
  const auto n = static_cast<float>(features);
  const float g_mean = centered ? row_reduce(sum, Plus()) / n : 0;
  const float projection = row_reduce(product, Plus()) / n;
  each([&](int64_t at, const Pack<float, N>& xhat, Pack<float, N>& g) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      g.values[i] = inv_std * (g.values[i] - g_mean - xhat.values[i] * projection);
    }
    store(dx + row * features + at, from_float<T>(g));
  });
}

constexpr int kRowsPerThread = 2;

// Computes the sums of dy and of dy * xhat per feature.
template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    parameter_sums_kernel(const T* x, const T* dy, const float* saved, int64_t rows,
                          int64_t features, double* partials) {
  __shared__ double shared[kColumnThreads * N];
  const int64_t feature = first_column<N>();
  float sum[N] = {}, product[N] = {};
  each_row<kRowsPerThread, false>(feature < features ? rows : 0, [&](int64_t row) {
    Pack<T, N> xs[kRowsPerThread] = {}, dys[kRowsPerThread] = {};
    Pack<float, 2> means[kRowsPerThread] = {};
#pragma unroll
    for (int k = 0; k < kRowsPerThread; ++k) {
      const int64_t at = row + k * blockDim.y;
      if (at >= rows) break;
      xs[k] = load<N>(x + at * features + feature);
      dys[k] = load<N>(dy + at * features + feature);
      means[k] = load<2>(saved + 2 * at);
    }
#pragma unroll
    for (int k = 0; k < kRowsPerThread; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const Pack<float, N> values = to_float(xs[k]), g = to_float(dys[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[i] += g.values[i];
        product[i] += g.values[i] * ((values.values[i] - means[k].values[0]) * means[k].values[1]);
      }
    }
  });
  double first[N], second[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first[i] = sum[i];
    second[i] = product[i];
  }
  store_partials(first, second, shared, features, partials);
}

}  // namespace

Plan plan(const LayerNormForward& op, const ContextPtr&, Specs given) {
  using Op = LayerNormForward;
  const int64_t rows = given[Op::kX].shape[0], features = given[Op::kX].shape[1];
  return with_pack(given[Op::kX].dtype, features, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, features / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      trireme::cuda::launch(
          "layer_norm_forward", forward_kernel<T, N>, grid, stream, pointer<T>(args, Op::kX),
          pointer<float>(args, Op::kGamma), pointer<float>(args, Op::kBeta), rows, features,
          op.epsilon, op.centered, pointer<T>(args, Op::kY), pointer<float>(args, Op::kSaved));
    });
  });
}

Plan plan(const LayerNormBackward& op, const ContextPtr& context, Specs given) {
  using Op = LayerNormBackward;
  const int64_t rows = given[Op::kX].shape[0], features = given[Op::kX].shape[1];
  return with_pack(given[Op::kX].dtype, features, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid columns(rows, features, N, kRowsPerThread, kColumnBlocks, context->device);
    const trireme::cuda::Grid grid = row_grid(rows, features / N);
    const auto work = [=](Stream& stream, Args args, void* scratch) {
      const auto* x = pointer<T>(args, Op::kX);
      const auto* dy = pointer<T>(args, Op::kDy);
      const auto* saved = pointer<float>(args, Op::kSaved);
      // This comes first, because dx may be dy.
      trireme::cuda::launch("layer_norm_backward", parameter_sums_kernel<T, N>, columns.grid,
                            stream, x, dy, saved, rows, features, static_cast<double*>(scratch));
      merge("layer_norm_backward", stream, scratch, columns.slabs, features,
            StoreGradients{pointer<float>(args, Op::kDgamma), pointer<float>(args, Op::kDbeta)});
      trireme::cuda::launch("layer_norm_backward", backward_kernel<T, N>, grid, stream, x, dy,
                            pointer<float>(args, Op::kGamma), saved, rows, features, op.centered,
                            pointer<T>(args, Op::kDx));
    };
    return function_op(in_row_major(given), work, columns.partial_bytes());
  });
}

}  // namespace trireme::ops::cuda
