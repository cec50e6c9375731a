// Batch normalisation of activations in channels-last order: a matrix of channels with a row for
// each place of each sample. Forward reads x twice and writes y; backward reads x, dy and y, from
// which it knows what the ReLU let through, twice and writes dx. With a residual the first pass
// writes its gradient, and the second reads that in place of dy and y. Each second pass runs
// backwards, for the end of the tensors is what the first has left in cache.
#include <limits>
#include <vector>

#include "ops/batch_norm.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/context.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// Rows that a thread reads at once, as kMomentRows.
constexpr int gradient_rows(bool relu, bool write) { return relu || write ? 1 : 2; }
constexpr int normalise_rows(bool residual) { return residual ? 2 : 4; }
// The last pass of all has so much to remember of its columns that one block must do.
constexpr int kPropagateBlocks = 1;
constexpr int propagate_rows(bool mask) { return mask ? 2 : 4; }

template <class T, int N>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    moments_kernel(const T* x, const StepState* state, Places places, double* partials) {
  __shared__ double shared[kColumnThreads * N];
  const int64_t channel = first_column<N>();
  double first[N], second[N];
  column_moments<kMomentRows>(x, channel < places.channels ? places.valid(state) : 0,
                              places.channels, channel, first, second);
  store_partials(first, second, shared, places.channels, partials);
}

// What a ReLU with result y passes of dy.
template <int N>
__device__ Pack<float, N> masked(const Pack<float, N>& dy, const Pack<float, N>& y) {
  Pack<float, N> g;
#pragma unroll
  for (int i = 0; i < N; ++i) g.values[i] = y.values[i] > 0 ? dy.values[i] : 0;
  return g;
}

// Sums of g and of g * xhat. Where kWrite, g is left in g_out, which may be dy.
template <class T, int N, bool kRelu, bool kWrite>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    gradient_sums_kernel(const T* x, const T* y, const T* dy, const float* saved,
                         const StepState* state, Places places, T* g_out, double* partials) {
  constexpr int kRows = gradient_rows(kRelu, kWrite);
  __shared__ double shared[kColumnThreads * N];
  const int64_t channel = first_column<N>();
  const int64_t rows = channel < places.channels ? places.valid(state) : 0;
  float mean[N] = {}, sum[N] = {}, product[N] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (channel < places.channels) mean[i] = saved[channel + i];
  }
  each_row<kRows, false>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, ys[kRows] = {}, dys[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * places.channels + channel;
      xs[k] = load<N>(x + at);
      if constexpr (kRelu) ys[k] = load<N>(y + at);
      dys[k] = load<N>(dy + at);
    }
    // Rows that do not exist are zeros, and add nothing.
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
        if (at < rows) store(g_out + at * places.channels + channel, from_float<T>(g));
      }
    }
  });
  double first[N], second[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first[i] = sum[i];
    second[i] =
        channel < places.channels ? double{product[i]} * saved[places.channels + channel + i] : 0;
  }
  store_partials(first, second, shared, places.channels, partials);
}

// The sums as they are, with the number of values.
struct StoreSums {
  double* sums;
  const StepState* state;
  Places places;

  __device__ void operator()(int64_t channel, double first, double second) const {
    sums[channel] = first;
    sums[places.channels + channel] = second;
    if (channel == 0) sums[2 * places.channels] = static_cast<double>(places.valid(state));
  }
};

// Sums for a channel, and of how many values.
struct ChannelSums {
  double first, second, count;

  __device__ double mean_first() const { return count > 0 ? first / count : 0; }
  __device__ double mean_second() const { return count > 0 ? second / count : 0; }
};
__device__ ChannelSums given_sums(const double* sums, int64_t channels, int64_t channel) {
  return {sums[channel], sums[channels + channel], sums[2 * channels]};
}

// Statistics from the sums of x and x^2 that were given, or else found.
struct FinishForward {
  BatchNormForward op;
  Places places;
  const double* given;
  const StepState* state;
  float *running_mean, *running_var, *saved;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const int64_t valid = places.valid(state);
    const ChannelSums sums = given ? given_sums(given, places.channels, channel)
                                   : ChannelSums{first, second, static_cast<double>(valid)};
    const double mean = sums.mean_first();
    const double difference = sums.mean_second() - mean * mean;
    const double var = difference < 0 ? 0 : difference;
    saved[channel] = static_cast<float>(mean);
    saved[places.channels + channel] = static_cast<float>(1 / sqrt(var + op.epsilon));
    if (!running_mean || valid == 0) return;
    const double unbiased = sums.count > 1 ? var * sums.count / (sums.count - 1) : var;
    running_mean[channel] += op.momentum * static_cast<float>(mean - running_mean[channel]);
    running_var[channel] += op.momentum * static_cast<float>(unbiased - running_var[channel]);
  }
};

// dx = scale * (g - g_mean - (x - mean) * projection), for each channel.
struct Coefficients {
  float *scale, *g_mean, *projection;
};

// Coefficients from the sums of g and g * xhat that were given, or else found.
struct FinishBackward {
  Places places;
  const double* given;
  const StepState* state;
  const float *gamma, *saved;
  float *dgamma, *dbeta;
  Coefficients coefficients;

  __device__ void operator()(int64_t channel, double first, double second) const {
    dbeta[channel] = static_cast<float>(first);
    dgamma[channel] = static_cast<float>(second);
    const ChannelSums sums =
        given ? given_sums(given, places.channels, channel)
              : ChannelSums{first, second, static_cast<double>(places.valid(state))};
    const double inv_std = saved[places.channels + channel];
    coefficients.scale[channel] = static_cast<float>(gamma[channel] * inv_std);
    coefficients.g_mean[channel] = static_cast<float>(sums.mean_first());
    coefficients.projection[channel] = static_cast<float>(sums.mean_second() * inv_std);
  }
};

// One of inv_std and var is given; beta and mean are zero where they are not.
struct Normalisation {
  const float *gamma, *beta, *mean, *inv_std, *var;
  float epsilon;
  float floor;  // 0 with a ReLU, else below everything

  __device__ float scale(int64_t channel) const {
    if (inv_std) return gamma[channel] * inv_std[channel];
    return gamma[channel] / sqrtf(var[channel] + epsilon);
  }
};

// y may be x or the residual.
template <class T, int N, bool kResidual>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    normalise_kernel(const T* x, const T* residual, Normalisation norm, Places places, T* y) {
  constexpr int kRows = normalise_rows(kResidual);
  const int64_t channel = first_column<N>();
  if (channel >= places.channels) return;
  float mean[N], scale[N], shift[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    mean[i] = norm.mean ? norm.mean[channel + i] : 0;
    scale[i] = norm.scale(channel + i);
    shift[i] = norm.beta ? norm.beta[channel + i] : 0;
  }
  const int64_t rows = places.all();
  each_row<kRows, true>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, residuals[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * places.channels + channel;
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
        values.values[i] = value < norm.floor ? norm.floor : value;  // keeps a NaN
      }
      store(y + (row + k * blockDim.y) * places.channels + channel, from_float<T>(values));
    }
  });
}

// dx from g, which is dy where y > 0 (kMask) or dy itself. dx may be dy. Where it is given,
// dresidual is cleared beyond the valid rows.
template <class T, int N, bool kMask>
__global__ void __launch_bounds__(kColumnThreads, kPropagateBlocks)
    propagate_kernel(const T* x, const T* y, const T* dy, const float* saved, Coefficients c,
                     const StepState* state, Places places, T* dx, T* dresidual) {
  constexpr int kRows = propagate_rows(kMask);
  const int64_t channel = first_column<N>();
  if (channel >= places.channels) return;
  float mean[N], scale[N], g_mean[N], projection[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    mean[i] = saved[channel + i];
    scale[i] = c.scale[channel + i];
    g_mean[i] = c.g_mean[channel + i];
    projection[i] = c.projection[channel + i];
  }
  const int64_t rows = places.all(), valid = places.valid(state);
  each_row<kRows, true>(rows, [&](int64_t row) {
    Pack<T, N> xs[kRows] = {}, ys[kRows] = {}, dys[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= valid) break;
      const int64_t at = (row + k * blockDim.y) * places.channels + channel;
      xs[k] = load<N>(x + at);
      if constexpr (kMask) ys[k] = load<N>(y + at);
      dys[k] = load<N>(dy + at);
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      const int64_t at = (row + k * blockDim.y) * places.channels + channel;
      Pack<float, N> out{};
      if (row + k * blockDim.y < valid) {
        Pack<float, N> g = to_float(dys[k]);
        if constexpr (kMask) g = masked(g, to_float(ys[k]));
        const Pack<float, N> values = to_float(xs[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float centred = values.values[i] - mean[i];
          out.values[i] = scale[i] * (g.values[i] - g_mean[i] - centred * projection[i]);
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
ColumnGrid column_grid(const Context& context, const Places& places, int rows_per_thread,
                       int blocks = kColumnBlocks) {
  return {places.rows(), places.channels, N, rows_per_thread, blocks, context.device};
}

template <class T, int N>
void normalise(const char* name, Stream& stream, const ColumnGrid& grid, const Places& places,
               const Normalisation& norm, const T* x, const T* residual, T* y) {
  const auto kernel = residual ? normalise_kernel<T, N, true> : normalise_kernel<T, N, false>;
  trireme::cuda::launch(name, kernel, grid.grid, stream, x, residual, norm, places, y);
}

template <class T, int N>
void sum_gradients(const char* name, Stream& stream, const ColumnGrid& grid, const Places& places,
                   const T* x, const T* y, const T* dy, const float* saved, const StepState* state,
                   T* g_out, void* partials) {
  const auto kernel =
      g_out ? (y ? gradient_sums_kernel<T, N, true, true> : gradient_sums_kernel<T, N, false, true>)
            : (y ? gradient_sums_kernel<T, N, true, false>
                 : gradient_sums_kernel<T, N, false, false>);
  trireme::cuda::launch(name, kernel, grid.grid, stream, x, y, dy, saved, state, places, g_out,
                        static_cast<double*>(partials));
}

}  // namespace

Plan plan(const BatchNormStatistics&, const ContextPtr& context, Specs given) {
  using Op = BatchNormStatistics;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX});
  const Places places(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, places.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid = column_grid<N>(*context, places, kMomentRows);
    const auto work = [places, grid](Stream& stream, Args args, void* scratch) {
      const auto* state = pointer<StepState>(args, Op::kState);
      trireme::cuda::launch("batch_norm_statistics", moments_kernel<T, N>, grid.grid, stream,
                            pointer<T>(args, Op::kX), state, places, static_cast<double*>(scratch));
      merge("batch_norm_statistics", stream, scratch, grid.slabs, places.channels,
            StoreSums{pointer<double>(args, Op::kSums), state, places});
    };
    return function_op(std::move(specs), work, grid.partial_bytes());
  });
}

Plan plan(const BatchNormForward& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormForward;
  std::vector<TensorSpec> specs = in_columns(given, {Op::kX, Op::kResidual, Op::kY});
  const Places places(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, places.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid moments = column_grid<N>(*context, places, kMomentRows);
    const ColumnGrid apply =
        column_grid<N>(*context, places, normalise_rows(!is_absent(specs[Op::kResidual])));
    const auto work = [op, places, moments, apply](Stream& stream, Args args, void* scratch) {
      const auto* x = pointer<T>(args, Op::kX);
      const auto* state = pointer<StepState>(args, Op::kState);
      const auto* sums = pointer<double>(args, Op::kSums);
      auto* saved = pointer<float>(args, Op::kSaved);
      if (!sums) {
        trireme::cuda::launch("batch_norm_forward", moments_kernel<T, N>, moments.grid, stream, x,
                              state, places, static_cast<double*>(scratch));
      }
      merge("batch_norm_forward", stream, scratch, sums ? 0 : moments.slabs, places.channels,
            FinishForward{op, places, sums, state, pointer<float>(args, Op::kRunningMean),
                          pointer<float>(args, Op::kRunningVar), saved});
      normalise<T, N>("batch_norm_forward", stream, apply, places,
                      {.gamma = pointer<float>(args, Op::kGamma),
                       .beta = pointer<float>(args, Op::kBeta),
                       .mean = saved,
                       .inv_std = saved + places.channels,
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
  const Places places(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, places.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid =
        column_grid<N>(*context, places, normalise_rows(!is_absent(specs[Op::kResidual])));
    const auto work = [op, places, grid](Stream& stream, Args args, void*) {
      normalise<T, N>("batch_norm_inference", stream, grid, places,
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
  const Places places(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, places.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    const ColumnGrid grid = column_grid<N>(*context, places, gradient_rows(op.relu, false));
    const auto work = [op, places, grid](Stream& stream, Args args, void* scratch) {
      const auto* state = pointer<StepState>(args, Op::kState);
      sum_gradients<T, N>("batch_norm_backward_sums", stream, grid, places,
                          pointer<T>(args, Op::kX), op.relu ? pointer<T>(args, Op::kY) : nullptr,
                          pointer<T>(args, Op::kDy), pointer<float>(args, Op::kSaved), state,
                          nullptr, scratch);
      merge("batch_norm_backward_sums", stream, scratch, grid.slabs, places.channels,
            StoreSums{pointer<double>(args, Op::kSums), state, places});
    };
    return function_op(std::move(specs), work, grid.partial_bytes());
  });
}

Plan plan(const BatchNormBackward& op, const ContextPtr& context, Specs given) {
  using Op = BatchNormBackward;
  std::vector<TensorSpec> specs =
      in_columns(given, {Op::kX, Op::kY, Op::kDy, Op::kDx, Op::kDresidual});
  const Places places(specs[Op::kX].shape);
  return with_pack(specs[Op::kX].dtype, places.channels, [&]<class T, int N>(T, Size<N>) -> Plan {
    // The first pass leaves g in dresidual, if there is one, and the second then needs no mask.
    const bool mask = op.relu && is_absent(specs[Op::kDresidual]);
    const ColumnGrid sums = column_grid<N>(*context, places, gradient_rows(op.relu, false));
    const ColumnGrid apply =
        column_grid<N>(*context, places, propagate_rows(mask), kPropagateBlocks);
    const auto work = [op, mask, places, sums, apply](Stream& stream, Args args, void* scratch) {
      const auto* x = pointer<T>(args, Op::kX);
      const auto* y = op.relu ? pointer<T>(args, Op::kY) : nullptr;
      const auto* dy = pointer<T>(args, Op::kDy);
      const auto* saved = pointer<float>(args, Op::kSaved);
      const auto* state = pointer<StepState>(args, Op::kState);
      auto* dresidual = pointer<T>(args, Op::kDresidual);
      sum_gradients<T, N>("batch_norm_backward", stream, sums, places, x, y, dy, saved, state,
                          dresidual, scratch);
      auto* scale =
          reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + sums.partial_bytes());
      const Coefficients coefficients{.scale = scale,
                                      .g_mean = scale + places.channels,
                                      .projection = scale + 2 * places.channels};
      merge(
          "batch_norm_backward", stream, scratch, sums.slabs, places.channels,
          FinishBackward{places, pointer<double>(args, Op::kSums), state,
                         pointer<float>(args, Op::kGamma), saved, pointer<float>(args, Op::kDgamma),
                         pointer<float>(args, Op::kDbeta), coefficients});
      trireme::cuda::launch("batch_norm_backward",
                            mask ? propagate_kernel<T, N, true> : propagate_kernel<T, N, false>,
                            apply.grid, stream, x, y, dresidual ? dresidual : dy, saved,
                            coefficients, state, places, pointer<T>(args, Op::kDx), dresidual);
    };
    const size_t coefficient_bytes = static_cast<size_t>(3 * places.channels) * sizeof(float);
    return function_op(std::move(specs), work, sums.partial_bytes() + coefficient_bytes);
  });
}

}  // namespace trireme::ops::cuda
