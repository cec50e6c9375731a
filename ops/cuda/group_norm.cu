// Group normalization of activations in channels-last order: each sample is a matrix with a column
// for each channel and a row for each position. Sums are computed per slab and channel (columns.h),
// then per group. The forward pass reads x twice and writes y. The backward pass reads x and dy
// twice and writes dx. Each second pass runs backwards, because the cache then holds the end of a
// sample.
#include <vector>

#include "ops/cuda/columns.h"
#include "ops/cuda/context.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"
#include "ops/group_norm.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

struct GroupedMatrix {
  ChannelMatrix matrix;
  int64_t groups;  // per sample

  int64_t all() const { return matrix.samples * groups; }
  __device__ int64_t count() const { return matrix.samples * groups; }
  __device__ int64_t channels() const { return matrix.channels / groups; }  // per group
  __device__ double values() const { return static_cast<double>(channels() * matrix.per_sample); }
  __device__ int64_t group(int64_t sample, int64_t channel) const {
    return sample * groups + channel / channels();
  }
  __device__ int64_t begin(int64_t sample) const {
    return sample * matrix.per_sample * matrix.channels;
  }
};

// A multiprocessor holds one block, whose threads have registers for the numbers of a channel and
// for enough rows to saturate memory (see kMomentRows).
constexpr int kGroupBlocks = 1;
constexpr int kGroupRows = 8;          // that a thread reads at a time
constexpr int kGroupGradientRows = 4;  // the same of two tensors

// Returns the location of the two sums of a sample, by slab and channel.
__device__ double* partials_of(double* partials, int64_t sample, int64_t channels) {
  return partials + sample * gridDim.y * 2 * channels;
}

template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kGroupBlocks)
    group_moments_kernel(const T* x, GroupedMatrix all, double* partials) {
  __shared__ double shared[kColumnThreads * N];
  const ChannelMatrix& matrix = all.matrix;
  const int64_t channel = first_column<N>();
  for (unsigned n = blockIdx.z; n < matrix.samples; n += gridDim.z) {
    double first[N], second[N];
    column_moments<kGroupRows>(x + all.begin(n), channel < matrix.channels ? matrix.per_sample : 0,
                               matrix.channels, channel, first, second);
    store_partials(first, second, shared, matrix.channels,
                   partials_of(partials, n, matrix.channels));
  }
}

// Computes the sums of dy and of dy * xhat; zero beyond the valid rows.
template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kGroupBlocks)
    group_gradient_sums_kernel(const T* x, const T* dy, const float* saved, const StepState* state,
                               GroupedMatrix all, double* partials) {
  constexpr int kRows = kGroupGradientRows;
  __shared__ double shared[kColumnThreads * N];
  const ChannelMatrix& matrix = all.matrix;
  const int64_t channel = first_column<N>(), valid = matrix.valid_samples(state);
  for (unsigned n = blockIdx.z; n < matrix.samples; n += gridDim.z) {
    const int64_t rows = channel < matrix.channels && n < valid ? matrix.per_sample : 0;
    float mean[N] = {}, inv_std[N] = {}, sum[N] = {}, product[N] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (rows == 0) break;
      mean[i] = saved[2 * all.group(n, channel + i)];
      inv_std[i] = saved[2 * all.group(n, channel + i) + 1];
    }
    each_row<kRows, false>(rows, [&](int64_t row) {
      Pack<T, N> xs[kRows] = {}, dys[kRows] = {};
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (row + k * blockDim.y >= rows) break;
        const int64_t at = all.begin(n) + (row + k * blockDim.y) * matrix.channels + channel;
        xs[k] = load<N>(x + at);
        dys[k] = load<N>(dy + at);
      }
      // Rows beyond the end are zeros and add nothing.
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const Pack<float, N> g = to_float(dys[k]), values = to_float(xs[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sum[i] += g.values[i];
          product[i] += g.values[i] * (values.values[i] - mean[i]);
        }
      }
    });
    double first[N], second[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      first[i] = sum[i];
      second[i] = double{product[i]} * inv_std[i];
    }
    store_partials(first, second, shared, matrix.channels,
                   partials_of(partials, n, matrix.channels));
  }
}

// Returns the sums of a group over slabs and channels, where those of a channel are multiplied by
// factor(channel). All threads of the warp call it and receive the result.
template <class F>
__device__ Pack<double, 2> sum_of_group(const double* partials, int64_t slabs,
                                        const GroupedMatrix& all, int64_t group, F factor) {
  const int64_t columns = all.matrix.channels, channels = all.channels();
  const int64_t first = group % all.groups * channels;
  partials += group / all.groups * slabs * 2 * columns;
  double sums[2] = {};
  for (int64_t i = threadIdx.x; i < slabs * channels; i += kWarpSize) {
    const int64_t channel = first + i % channels;
    const double* slab = partials + i / channels * 2 * columns + channel;
    sums[0] += factor(channel) * slab[0];
    sums[1] += factor(channel) * slab[columns];
  }
  return {warp_reduce(sums[0], Plus()), warp_reduce(sums[1], Plus())};
}

// One warp per group.
__global__ void __launch_bounds__(kMaxRowThreads)
    group_statistics_kernel(const double* partials, int64_t slabs, GroupedMatrix all, float epsilon,
                            float* saved) {
  const int64_t group = row_of_thread();
  if (group >= all.count()) return;
  const Pack<double, 2> sums =
      sum_of_group(partials, slabs, all, group, [](int64_t) { return 1.0; });
  if (threadIdx.x != 0) return;
  const double mean = sums.values[0] / all.values();
  const double difference = sums.values[1] / all.values() - mean * mean;
  const double var = difference < 0 ? 0 : difference;
  saved[2 * group] = static_cast<float>(mean);
  saved[2 * group + 1] = static_cast<float>(1 / sqrt(var + epsilon));
}

// dx = inv_std * (gamma * dy - shift - (x - mean) * slope), with shift and slope per group. One
// warp per group.
__global__ void __launch_bounds__(kMaxRowThreads)
    group_coefficients_kernel(const double* partials, int64_t slabs, GroupedMatrix all,
                              const float* gamma, const float* saved, float* coefficients) {
  const int64_t group = row_of_thread();
  if (group >= all.count()) return;
  const Pack<double, 2> sums = sum_of_group(partials, slabs, all, group, [&](int64_t channel) {
    return gamma ? double{gamma[channel]} : 1.0;
  });
  if (threadIdx.x != 0) return;
  const double inv_std = saved[2 * group + 1];
  coefficients[2 * group] = static_cast<float>(sums.values[0] / all.values());
  coefficients[2 * group + 1] = static_cast<float>(inv_std * sums.values[1] / all.values());
}

// y may be x.
template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kGroupBlocks)
    group_normalize_kernel(const T* x, const float* gamma, const float* beta, const float* saved,
                           GroupedMatrix all, T* y) {
  constexpr int kRows = kGroupRows;
  const ChannelMatrix& matrix = all.matrix;
  const int64_t channel = first_column<N>(), rows = matrix.per_sample;
  if (channel >= matrix.channels) return;
  for (unsigned n = blockIdx.z; n < matrix.samples; n += gridDim.z) {
    float mean[N], scale[N], shift[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t group = all.group(n, channel + i);
      mean[i] = saved[2 * group];
      scale[i] = saved[2 * group + 1] * (gamma ? gamma[channel + i] : 1);
      shift[i] = beta ? beta[channel + i] : 0;
    }
    each_row<kRows, true>(rows, [&](int64_t row) {
      const int64_t begin = all.begin(n) + channel;
      Pack<T, N> xs[kRows] = {};
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (row + k * blockDim.y >= rows) break;
        xs[k] = load<N>(x + begin + (row + k * blockDim.y) * matrix.channels);
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (row + k * blockDim.y >= rows) break;
        Pack<float, N> values = to_float(xs[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          values.values[i] = (values.values[i] - mean[i]) * scale[i] + shift[i];
        }
        store(y + begin + (row + k * blockDim.y) * matrix.channels, from_float<T>(values));
      }
    });
  }
}

// dx may be dy.
template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kGroupBlocks)
    group_propagate_kernel(const T* x, const T* dy, const float* gamma, const float* saved,
                           const float* coefficients, const StepState* state, GroupedMatrix all,
                           T* dx) {
  constexpr int kRows = kGroupGradientRows;
  const ChannelMatrix& matrix = all.matrix;
  const int64_t channel = first_column<N>(), rows = matrix.per_sample;
  if (channel >= matrix.channels) return;
  for (unsigned n = blockIdx.z; n < matrix.samples; n += gridDim.z) {
    const bool valid = n < matrix.valid_samples(state);
    float mean[N], inv_std[N], factor[N], shift[N], slope[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t group = all.group(n, channel + i);
      mean[i] = saved[2 * group];
      inv_std[i] = saved[2 * group + 1];
      factor[i] = gamma ? gamma[channel + i] : 1;
      shift[i] = coefficients[2 * group];
      slope[i] = coefficients[2 * group + 1];
    }
    each_row<kRows, true>(rows, [&](int64_t row) {
      const int64_t begin = all.begin(n) + channel;
      Pack<T, N> xs[kRows] = {}, dys[kRows] = {};
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (row + k * blockDim.y >= rows) break;
        const int64_t at = begin + (row + k * blockDim.y) * matrix.channels;
        xs[k] = load<N>(x + at);
        dys[k] = load<N>(dy + at);
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (row + k * blockDim.y >= rows) break;
        const Pack<float, N> values = to_float(xs[k]), g = to_float(dys[k]);
        Pack<float, N> out{};
#pragma unroll
        for (int i = 0; i < N; ++i) {
          if (!valid) break;
          const float centered = values.values[i] - mean[i];
          out.values[i] = inv_std[i] * (factor[i] * g.values[i] - shift[i] - centered * slope[i]);
        }
        store(dx + begin + (row + k * blockDim.y) * matrix.channels, from_float<T>(out));
      }
    });
  }
}

template <int N>
ColumnGrid group_columns(const Context& context, const GroupedMatrix& all, int rows_per_thread) {
  return {all.matrix.per_sample, all.matrix.channels, N, rows_per_thread, kGroupBlocks,
          context.device,        all.matrix.samples};
}

}  // namespace

Plan plan(const GroupNormForward& op, const ContextPtr& context, Specs given) {
  using Op = GroupNormForward;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kY});
  const GroupedMatrix all{ChannelMatrix(specs[Op::kX].shape), op.groups};
  return with_pack(
      specs[Op::kX].dtype, all.matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
        const ColumnGrid sums = group_columns<N>(*context, all, kGroupRows);
        const ColumnGrid apply = group_columns<N>(*context, all, kGroupRows);
        const trireme::cuda::Grid groups = row_grid(all.all(), 1);
        const auto work = [=, epsilon = op.epsilon](Stream& stream, Args args, void* scratch) {
          const auto* x = pointer<T>(args, Op::kX);
          auto* partials = static_cast<double*>(scratch);
          auto* saved = pointer<float>(args, Op::kSaved);
          if (!saved)
            saved = reinterpret_cast<float*>(partials + sums.partial_bytes() / sizeof(double));
          trireme::cuda::launch("group_norm_forward", group_moments_kernel<T, N>, sums.grid, stream,
                                x, all, partials);
          trireme::cuda::launch("group_norm_forward", group_statistics_kernel, groups, stream,
                                partials, sums.slabs, all, epsilon, saved);
          trireme::cuda::launch("group_norm_forward", group_normalize_kernel<T, N>, apply.grid,
                                stream, x, pointer<float>(args, Op::kGamma),
                                pointer<float>(args, Op::kBeta), saved, all,
                                pointer<T>(args, Op::kY));
        };
        const size_t own = is_absent(specs[Op::kSaved]) ? static_cast<size_t>(2 * all.all()) : 0;
        return function_op(std::move(specs), work, sums.partial_bytes() + own * sizeof(float));
      });
}

Plan plan(const GroupNormBackward& op, const ContextPtr& context, Specs given) {
  using Op = GroupNormBackward;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kDy, Op::kDx});
  const GroupedMatrix all{ChannelMatrix(specs[Op::kX].shape), op.groups};
  return with_pack(
      specs[Op::kX].dtype, all.matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
        const ColumnGrid sums = group_columns<N>(*context, all, kGroupGradientRows);
        const ColumnGrid apply = group_columns<N>(*context, all, kGroupGradientRows);
        const trireme::cuda::Grid groups = row_grid(all.all(), 1);
        const auto work = [=](Stream& stream, Args args, void* scratch) {
          const auto* x = pointer<T>(args, Op::kX);
          const auto* dy = pointer<T>(args, Op::kDy);
          const auto* gamma = pointer<float>(args, Op::kGamma);
          const auto* saved = pointer<float>(args, Op::kSaved);
          const auto* state = pointer<StepState>(args, Op::kState);
          auto* dgamma = pointer<float>(args, Op::kDgamma);
          auto* partials = static_cast<double*>(scratch);
          auto* coefficients =
              reinterpret_cast<float*>(partials + sums.partial_bytes() / sizeof(double));
          trireme::cuda::launch("group_norm_backward", group_gradient_sums_kernel<T, N>, sums.grid,
                                stream, x, dy, saved, state, all, partials);
          if (dgamma) {
            merge("group_norm_backward", stream, partials, sums.samples * sums.slabs,
                  all.matrix.channels, StoreGradients{dgamma, pointer<float>(args, Op::kDbeta)});
          }
          trireme::cuda::launch("group_norm_backward", group_coefficients_kernel, groups, stream,
                                partials, sums.slabs, all, gamma, saved, coefficients);
          trireme::cuda::launch("group_norm_backward", group_propagate_kernel<T, N>, apply.grid,
                                stream, x, dy, gamma, saved, coefficients, state, all,
                                pointer<T>(args, Op::kDx));
        };
        const size_t own = static_cast<size_t>(2 * all.all()) * sizeof(float);
        return function_op(std::move(specs), work, sums.partial_bytes() + own);
      });
}

}  // namespace trireme::ops::cuda
