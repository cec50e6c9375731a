// Batch normalization of activations in channels-last order: a matrix with a column for each
// channel and a row for each position of each sample. The forward pass reads x twice and writes y.
// The backward pass reads x, dy and y (for the mask of the ReLU) twice and writes dx; with a
// residual, its first pass writes the gradient of the residual, which the second reads instead of
// dy and y. Each second pass runs backwards, because the cache then holds the end of the tensors.
#include <limits>
#include <vector>

#include "ops/batch_norm.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/context.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// Rows that a thread reads at a time, see kMomentRows.
constexpr int gradient_rows(bool relu, bool write) { return relu || write ? 1 : 2; }
constexpr int normalize_rows(bool residual) { return residual ? 2 : 4; }
// The last pass needs so many registers per column that only one block fits.
constexpr int kPropagateBlocks = 1;
constexpr int propagate_rows(bool mask) { return mask ? 2 : 4; }

template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    moments_kernel(const T* x, const StepState* state, ChannelMatrix matrix, double* partials) {
  __shared__ double shared[kColumnThreads * N];
  const int64_t channel = first_column<N>();
  double first[N], second[N];
  column_moments<kMomentRows>(x, channel < matrix.channels ? matrix.valid(state) : 0,
                              matrix.channels, channel, first, second);
  store_partials(first, second, shared, matrix.channels, partials);
}

// Returns dy where y > 0 and 0 elsewhere: the gradient through a ReLU with output y.
template <int N>
__device__ Pack<float, N> masked(const Pack<float, N>& dy, const Pack<float, N>& y) {
  Pack<float, N> g;
#pragma unroll
  for (int i = 0; i < N; ++i) g.values[i] = y.values[i] > 0 ? dy.values[i] : 0;
  return g;
}

// Sums of g and of g * xhat. If kWrite, g is written to g_out, which may be dy.
template <class T, int N, bool kRelu, bool kWrite>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    gradient_sums_kernel(const T* x, const T* y, const T* dy, const float* saved,
                         const StepState* state, ChannelMatrix matrix, T* g_out, double* partials) {
  constexpr int kRows = gradient_rows(kRelu, kWrite);
  __shared__ double shared[kColumnThreads * N];
  const int64_t channel = first_column<N>();
  const int64_t rows = channel < matrix.channels ? matrix.valid(state) : 0;
  float mean[N] = {}, sum[N] = {}, product[N] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (channel < matrix.channels) mean[i] = saved[channel + i];
  }
  each_row<kRows, false>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, ys[kRows] = {}, dys[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * matrix.channels + channel;
      xs[k] = load<N>(x + at);
      if constexpr (kRelu) ys[k] = load<N>(y + at);
      dys[k] = load<N>(dy + at);
    }
    // Rows beyond the end are zeros and add nothing.
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      Pack<float, N> g = to_float(dys[k]);
      if constexpr (kRelu) g = masked(g, to_float(ys[k]));
      const Pack<float, N> values = to_float(xs[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[i] += g.values[i];
        product[i] += g.values[i] * (values.values[i] - mean[i]);
      }
      if constexpr (kWrite) {
        const int64_t at = row + k * blockDim.y;
        if (at < rows) store(g_out + at * matrix.channels + channel, from_float<T>(g));
      }
    }
  });
  double first[N], second[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first[i] = sum[i];
    second[i] =
        channel < matrix.channels ? double{product[i]} * saved[matrix.channels + channel + i] : 0;
  }
  store_partials(first, second, shared, matrix.channels, partials);
}

// Stores the sums and the number of values.
struct StoreSums {
  double* sums;
  const StepState* state;
  ChannelMatrix matrix;

  __device__ void operator()(int64_t channel, double first, double second) const {
    sums[channel] = first;
    sums[matrix.channels + channel] = second;
    if (channel == 0) sums[2 * matrix.channels] = static_cast<double>(matrix.valid(state));
  }
};

// The sums of a channel and the number of values.
struct ChannelSums {
  double first, second, count;

  __device__ double mean_first() const { return count > 0 ? first / count : 0; }
  __device__ double mean_second() const { return count > 0 ? second / count : 0; }
};
__device__ ChannelSums given_sums(const double* sums, int64_t channels, int64_t channel) {
  return {sums[channel], sums[channels + channel], sums[2 * channels]};
}

// Computes the statistics from the given sums of x and x^2, or from the local ones.
struct FinishForward {
  BatchNormForward op;
  ChannelMatrix matrix;
  const double* given;
  const StepState* state;
  float *running_mean, *running_var, *saved;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const ChannelSums sums =
        given ? given_sums(given, matrix.channels, channel)
              : ChannelSums{first, second, static_cast<double>(matrix.valid(state))};
    const double mean = sums.mean_first();
    const double difference = sums.mean_second() - mean * mean;
    const double var = difference < 0 ? 0 : difference;
    saved[channel] = static_cast<float>(mean);
    saved[matrix.channels + channel] = static_cast<float>(1 / sqrt(var + op.epsilon));
    if (!running_mean || sums.count == 0) return;
    const double unbiased = sums.count > 1 ? var * sums.count / (sums.count - 1) : var;
    running_mean[channel] += op.momentum * static_cast<float>(mean - running_mean[channel]);
    running_var[channel] += op.momentum * static_cast<float>(unbiased - running_var[channel]);
  }
};

// dx = scale * (g - g_mean - (x - mean) * projection), with coefficients per channel.
struct Coefficients {
  float *scale, *g_mean, *projection;
};

// Computes the coefficients from the given sums of g and g * xhat, or from the local ones.
struct FinishBackward {
  ChannelMatrix matrix;
  const double* given;
  const StepState* state;
  const float *gamma, *saved;
  float *dgamma, *dbeta;
  Coefficients coefficients;

  __device__ void operator()(int64_t channel, double first, double second) const {
    dbeta[channel] = static_cast<float>(first);
    dgamma[channel] = static_cast<float>(second);
    const ChannelSums sums =
        given ? given_sums(given, matrix.channels, channel)
              : ChannelSums{first, second, static_cast<double>(matrix.valid(state))};
    const double inv_std = saved[matrix.channels + channel];
    coefficients.scale[channel] = static_cast<float>(gamma[channel] * inv_std);
    coefficients.g_mean[channel] = static_cast<float>(sums.mean_first());
    coefficients.projection[channel] = static_cast<float>(sums.mean_second() * inv_std);
  }
};

// Either inv_std or var is null. beta and mean default to zero if null.
struct Normalization {
  const float *gamma, *beta, *mean, *inv_std, *var;
  float epsilon;
  float floor;  // 0 with a ReLU, otherwise -infinity

  __device__ float scale(int64_t channel) const {
    if (inv_std) return gamma[channel] * inv_std[channel];
    return gamma[channel] / sqrtf(var[channel] + epsilon);
  }
};

// y may be x or the residual.
template <class T, int N, bool kResidual>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    normalize_kernel(const T* x, const T* residual, Normalization norm, ChannelMatrix matrix,
                     T* y) {
  constexpr int kRows = normalize_rows(kResidual);
  const int64_t channel = first_column<N>();
  if (channel >= matrix.channels) return;
  float mean[N], scale[N], shift[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    mean[i] = norm.mean ? norm.mean[channel + i] : 0;
    scale[i] = norm.scale(channel + i);
    shift[i] = norm.beta ? norm.beta[channel + i] : 0;
  }
  const int64_t rows = matrix.all();
  each_row<kRows, true>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, residuals[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * matrix.channels + channel;
      xs[k] = load<N>(x + at);
      if constexpr (kResidual) residuals[k] = load<N>(residual + at);
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      Pack<float, N> values = to_float(xs[k]), added{};
      if constexpr (kResidual) added = to_float(residuals[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float value = (values.values[i] - mean[i]) * scale[i] + shift[i] + added.values[i];
        values.values[i] = value < norm.floor ? norm.floor : value;  // preserves NaN
      }
      store(y + (row + k * blockDim.y) * matrix.channels + channel, from_float<T>(values));
    }
  });
}

// Computes dx from g, which is dy where y > 0 and 0 elsewhere (kMask), or dy itself. dx may be dy.
// Rows of dresidual, if present, beyond the valid ones are set to zero.
template <class T, int N, bool kMask>
__global__ void __launch_bounds__(kColumnThreads, kPropagateBlocks)
    propagate_kernel(const T* x, const T* y, const T* dy, const float* saved, Coefficients c,
                     const StepState* state, ChannelMatrix matrix, T* dx, T* dresidual) {
  constexpr int kRows = propagate_rows(kMask);
  const int64_t channel = first_column<N>();
  if (channel >= matrix.channels) return;
  float mean[N], scale[N], g_mean[N], projection[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    mean[i] = saved[channel + i];
    scale[i] = c.scale[channel + i];
    g_mean[i] = c.g_mean[channel + i];
    projection[i] = c.projection[channel + i];
  }
  const int64_t rows = matrix.all(), valid = matrix.valid(state);
  each_row<kRows, true>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, ys[kRows] = {}, dys[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= valid) break;
      const int64_t at = (row + k * blockDim.y) * matrix.channels + channel;
      xs[k] = load<N>(x + at);
      if constexpr (kMask) ys[k] = load<N>(y + at);
      dys[k] = load<N>(dy + at);
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * matrix.channels + channel;
      Pack<float, N> out{};
      if (row + k * blockDim.y < valid) {
        Pack<float, N> g = to_float(dys[k]);
        if constexpr (kMask) g = masked(g, to_float(ys[k]));
        const Pack<float, N> values = to_float(xs[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float centered = values.values[i] - mean[i];
          out.values[i] = scale[i] * (g.values[i] - g_mean[i] - centered * projection[i]);
        }
      } else if (dresidual) {
        store(dresidual + at, from_float<T>(out));
      }
      store(dx + at, from_float<T>(out));
    }
  });
}

float floor_of(bool relu) { return relu ? 0 : -std::numeric_limits<float>::infinity(); }

template <int N>
ColumnGrid column_grid(const Context& context, const ChannelMatrix& matrix, int rows_per_thread,
                       int blocks = kColumnBlocks) {
  return {matrix.rows(), matrix.channels, N, rows_per_thread, blocks, context.device};
}

template <class T, int N>
void normalize(const char* name, Stream& stream, const ColumnGrid& grid,
               const ChannelMatrix& matrix, const Normalization& norm, const T* x,
               const T* residual, T* y) {
  const auto kernel = residual ? normalize_kernel<T, N, true> : normalize_kernel<T, N, false>;
  trireme::cuda::launch(name, kernel, grid.grid, stream, x, residual, norm, matrix, y);
}

template <class T, int N>
void sum_gradients(const char* name, Stream& stream, const ColumnGrid& grid,
                   const ChannelMatrix& matrix, const T* x, const T* y, const T* dy,
                   const float* saved, const StepState* state, T* g_out, void* partials) {
  const auto kernel =
      g_out ? (y ? gradient_sums_kernel<T, N, true, true> : gradient_sums_kernel<T, N, false, true>)
            : (y ? gradient_sums_kernel<T, N, true, false>
                 : gradient_sums_kernel<T, N, false, false>);
  trireme::cuda::launch(name, kernel, grid.grid, stream, x, y, dy, saved, state, matrix, g_out,
                        static_cast<double*>(partials));
}

}  // namespace

Plan plan(const BatchNormStatistics&, const ContextPtr& context, Specs given) {
  using Op = BatchNormStatistics;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX});
  const ChannelMatrix matrix(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid = column_grid<N>(*context, matrix, kMomentRows);
    const auto work = [matrix, grid](Stream& stream, Args args, void* scratch) {
      const auto* state = pointer<StepState>(args, Op::kState);
      trireme::cuda::launch("batch_norm_statistics", moments_kernel<T, N>, grid.grid, stream,
                            pointer<T>(args, Op::kX), state, matrix, static_cast<double*>(scratch));
      merge("batch_norm_statistics", stream, scratch, grid.slabs, matrix.channels,
            StoreSums{pointer<double>(args, Op::kSums), state, matrix});
    };
    return function_op(std::move(specs), work, grid.partial_bytes());
  });
}

Plan plan(const BatchNormForward& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormForward;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kResidual, Op::kY});
  const ChannelMatrix matrix(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid moments = column_grid<N>(*context, matrix, kMomentRows);
    const ColumnGrid apply =
        column_grid<N>(*context, matrix, normalize_rows(!is_absent(specs[Op::kResidual])));
    const auto work = [op, matrix, moments, apply](Stream& stream, Args args, void* scratch) {
      const auto* x = pointer<T>(args, Op::kX);
      const auto* state = pointer<StepState>(args, Op::kState);
      const auto* sums = pointer<double>(args, Op::kSums);
      auto* saved = pointer<float>(args, Op::kSaved);
      if (!sums) {
        trireme::cuda::launch("batch_norm_forward", moments_kernel<T, N>, moments.grid, stream, x,
                              state, matrix, static_cast<double*>(scratch));
      }
      merge("batch_norm_forward", stream, scratch, sums ? 0 : moments.slabs, matrix.channels,
            FinishForward{op, matrix, sums, state, pointer<float>(args, Op::kRunningMean),
                          pointer<float>(args, Op::kRunningVar), saved});
      normalize<T, N>("batch_norm_forward", stream, apply, matrix,
                      {.gamma = pointer<float>(args, Op::kGamma),
                       .beta = pointer<float>(args, Op::kBeta),
                       .mean = saved,
                       .inv_std = saved + matrix.channels,
                       .var = nullptr,
                       .epsilon = 0,
                       .floor = floor_of(op.relu)},
                      x, pointer<T>(args, Op::kResidual), pointer<T>(args, Op::kY));
    };
    const bool own = is_absent(given[Op::kSums]);
    return function_op(std::move(specs), work, own ? moments.partial_bytes() : 0);
  });
}

Plan plan(const BatchNormInference& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormInference;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kResidual, Op::kY});
  const ChannelMatrix matrix(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid =
        column_grid<N>(*context, matrix, normalize_rows(!is_absent(specs[Op::kResidual])));
    const auto work = [op, matrix, grid](Stream& stream, Args args, void*) {
      normalize<T, N>("batch_norm_inference", stream, grid, matrix,
                      {.gamma = pointer<float>(args, Op::kGamma),
                       .beta = pointer<float>(args, Op::kBeta),
                       .mean = pointer<float>(args, Op::kRunningMean),
                       .inv_std = nullptr,
                       .var = pointer<float>(args, Op::kRunningVar),
                       .epsilon = op.epsilon,
                       .floor = floor_of(op.relu)},
                      pointer<T>(args, Op::kX), pointer<T>(args, Op::kResidual),
                      pointer<T>(args, Op::kY));
    };
    return function_op(std::move(specs), work);
  });
}

Plan plan(const BatchNormBackwardSums& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormBackwardSums;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kY, Op::kDy});
  const ChannelMatrix matrix(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid = column_grid<N>(*context, matrix, gradient_rows(op.relu, false));
    const auto work = [op, matrix, grid](Stream& stream, Args args, void* scratch) {
      const auto* state = pointer<StepState>(args, Op::kState);
      sum_gradients<T, N>("batch_norm_backward_sums", stream, grid, matrix,
                          pointer<T>(args, Op::kX), op.relu ? pointer<T>(args, Op::kY) : nullptr,
                          pointer<T>(args, Op::kDy), pointer<float>(args, Op::kSaved), state,
                          nullptr, scratch);
      merge("batch_norm_backward_sums", stream, scratch, grid.slabs, matrix.channels,
            StoreSums{pointer<double>(args, Op::kSums), state, matrix});
    };
    return function_op(std::move(specs), work, grid.partial_bytes());
  });
}

Plan plan(const BatchNormBackward& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormBackward;
  std::vector<TensorSpec> specs =
      in_columns(given, {Op::kX, Op::kY, Op::kDy, Op::kDx, Op::kDresidual});
  const ChannelMatrix matrix(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, matrix.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    // The first pass writes g to dresidual, if present, and the second then needs no mask.
    const bool mask = op.relu && is_absent(specs[Op::kDresidual]);
    const ColumnGrid sums = column_grid<N>(*context, matrix, gradient_rows(op.relu, false));
    const ColumnGrid apply =
        column_grid<N>(*context, matrix, propagate_rows(mask), kPropagateBlocks);
    const auto work = [op, mask, matrix, sums, apply](Stream& stream, Args args, void* scratch) {
      const auto* x = pointer<T>(args, Op::kX);
      const auto* y = op.relu ? pointer<T>(args, Op::kY) : nullptr;
      const auto* dy = pointer<T>(args, Op::kDy);
      const auto* saved = pointer<float>(args, Op::kSaved);
      const auto* state = pointer<StepState>(args, Op::kState);
      auto* dresidual = pointer<T>(args, Op::kDresidual);
      sum_gradients<T, N>("batch_norm_backward", stream, sums, matrix, x, y, dy, saved, state,
                          dresidual, scratch);
      auto* scale =
          reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + sums.partial_bytes());
      const Coefficients coefficients{.scale = scale,
                                      .g_mean = scale + matrix.channels,
                                      .projection = scale + 2 * matrix.channels};
      merge(
          "batch_norm_backward", stream, scratch, sums.slabs, matrix.channels,
          FinishBackward{matrix, pointer<double>(args, Op::kSums), state,
                         pointer<float>(args, Op::kGamma), saved, pointer<float>(args, Op::kDgamma),
                         pointer<float>(args, Op::kDbeta), coefficients});
      trireme::cuda::launch("batch_norm_backward",
                            mask ? propagate_kernel<T, N, true> : propagate_kernel<T, N, false>,
                            apply.grid, stream, x, y, dresidual ? dresidual : dy, saved,
                            coefficients, state, matrix, pointer<T>(args, Op::kDx), dresidual);
    };
    const size_t coefficient_bytes = static_cast<size_t>(3 * matrix.channels) * sizeof(float);
    return function_op(std::move(specs), work, sums.partial_bytes() + coefficient_bytes);
  });
}

}  // namespace trireme::ops::cuda
