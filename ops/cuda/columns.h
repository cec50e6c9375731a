// Sums over the columns of a matrix [rows, columns] in row-major order, two per column, at memory
// bandwidth. Normalization ops consist mostly of them: activations in channels-last order are such
// a matrix, with a row for each position.
//
// A block processes a tile of columns and every slabs-th chunk of rows. Each thread always
// processes the same pack of columns, so that values per column stay in registers. Each thread sums
// in f32. The sums of threads are added in double precision: first over the block (add_over_block),
// then, in another kernel, over the slabs (merge).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/cuda/launch.h"
#include "ops/backend.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/reduce.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {

inline constexpr int kColumnThreads = 512;
inline constexpr int kColumnBlocks = 2;   // resident blocks per multiprocessor
inline constexpr int kPacksPerTile = 32;  // maximum
inline constexpr int kMergedColumns = 16;
inline constexpr int64_t kMaxSamples = 65535;  // maximum of a grid's z dimension

// Activations [N, C, ...] as such a matrix: `samples` * `per_sample` rows and `channels` columns.
struct ChannelMatrix {
  explicit ChannelMatrix(const Shape& x)
      : samples(x[0]), per_sample(x.elements() / (x[0] * x[1])), channels(x[1]) {}

  int64_t rows() const { return samples * per_sample; }
  __device__ int64_t all() const { return samples * per_sample; }
  __device__ int64_t valid_samples(const StepState* state) const {
    return min(max(int64_t{state->valid_rows}, int64_t{0}), samples);
  }
  __device__ int64_t valid(const StepState* state) const {
    return valid_samples(state) * per_sample;
  }

  int64_t samples, per_sample, channels;
};

// Returns the specs with all `activations` in channels-last layout, or row-major if there is only
// one position per sample.
inline std::vector<TensorSpec> in_columns(Specs specs, std::initializer_list<int> activations) {
  std::vector<TensorSpec> chosen(specs.begin(), specs.end());
  for (TensorSpec& spec : chosen) {
    if (!is_absent(spec)) spec.layout = Layout::row_major();
  }
  for (int i : activations) {
    TensorSpec& spec = chosen[static_cast<size_t>(i)];
    if (spec.shape.rank() > 2) spec.layout = Layout::channels_last();
  }
  return chosen;
}

// The grid for such a matrix: as many blocks as the device can hold at a time (`resident` per
// multiprocessor), or fewer. With `samples` there is one matrix per sample, and blockIdx.z is the
// first one that a block processes.
struct ColumnGrid {
  ColumnGrid(int64_t rows, int64_t all_columns, int pack, int rows_per_thread, int resident,
             Device& device, int64_t all_samples = 1)
      : columns(all_columns), samples(all_samples) {
    const int64_t packs = columns / pack;
    const int64_t tiles = (packs + kPacksPerTile - 1) / kPacksPerTile;
    const int64_t width = (packs + tiles - 1) / tiles;
    // At most as high as there are rows; add_over_block requires `pack` threads per column.
    const int64_t height = std::max<int64_t>(pack, std::min(kColumnThreads / width, rows));
    const int64_t chunks = (rows + height * rows_per_thread - 1) / (height * rows_per_thread);
    const int64_t blocks = int64_t{resident} * trireme::cuda::properties(device).multiprocessors;
    slabs = std::max<int64_t>(1, std::min(chunks, blocks / tiles / samples));
    grid = {.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slabs),
                           static_cast<unsigned>(std::min(samples, kMaxSamples))),
            .threads = dim3(static_cast<unsigned>(width), static_cast<unsigned>(height))};
  }
  // Bytes of two sums for each sample, slab and column.
  size_t partial_bytes() const {
    return static_cast<size_t>(2 * samples * slabs * columns) * sizeof(double);
  }

  int64_t columns, samples, slabs;
  trireme::cuda::Grid grid;
};

// Returns the first column of the calling thread. It may be beyond the last column.
template <int N>
__device__ int64_t first_column() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
}

// Calls f(row) for the first of each kRows rows, blockDim.y apart, that the calling thread
// processes. f must check whether the other rows exist. With kBackwards, the rows that an earlier
// kernel has read last come first, as they may still be in cache.
template <int kRows, bool kBackwards, class F>
__device__ void each_row(int64_t rows, F f) {
  const int64_t chunk = int64_t{blockDim.y} * kRows;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  for (int64_t i = blockIdx.y; i < chunks; i += gridDim.y) {
    f((kBackwards ? chunks - 1 - i : i) * chunk + threadIdx.y);
  }
}

// Sums values over the rows of the block. `values` are those of the calling thread, one per column.
// Calls f(column, sum) in one thread for every column of the tile, including those beyond the last.
// `shared` must have space for N values per thread. All threads of the block must call this
// function.
template <int N, class F>
__device__ void add_over_block(const double (&values)[N], double* shared, F f) {
  const unsigned threads = blockDim.x * blockDim.y, columns = blockDim.x * N;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned helpers = blockDim.y / N;  // threads per column, at least one
  const unsigned column = thread % columns, helper = thread / columns;
  __syncthreads();  // previous contents have been read
#pragma unroll
  for (int i = 0; i < N; ++i) shared[i * threads + thread] = values[i];
  __syncthreads();
  double sum = 0;
  if (helper < helpers) {
    const double* rows = shared + column / blockDim.x * threads + column % blockDim.x;
    for (unsigned y = helper; y < blockDim.y; y += helpers) sum += rows[y * blockDim.x];
  }
  __syncthreads();
  if (helper < helpers) shared[thread] = sum;
  __syncthreads();
  if (helper != 0) return;
  for (unsigned other = 1; other < helpers; ++other) sum += shared[other * columns + column];
  f((int64_t{blockIdx.x} * blockDim.x + column % blockDim.x) * N + column / blockDim.x, sum);
}

// Rows that a thread of column_moments reads at a time. At least 48 KiB per multiprocessor must be
// in flight to saturate memory.
inline constexpr int kMomentRows = 4;

// Computes the calling thread's sums of x and of x^2. It accumulates differences to the first value
// that it reads, so that a variance that is small compared to the mean is not lost to rounding.
template <int kRows, class T, int N>
__device__ void column_moments(const T* x, int64_t rows, int64_t columns, int64_t column,
                               double (&first)[N], double (&second)[N]) {
  Pack<float, N> shift{};
  float sum[N] = {}, square[N] = {};
  int64_t count = 0;
  each_row<kRows, false>(rows, [&](int64_t row) {
    Pack<T, N> packs[kRows] = {};
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = row + k * blockDim.y;
      if (at < rows) packs[k] = load<N>(x + at * columns + column);
    }
    if (count == 0 && row < rows) shift = to_float(packs[0]);
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * blockDim.y >= rows) break;
      ++count;
      const Pack<float, N> xs = to_float(packs[k]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float difference = xs.values[i] - shift.values[i];
        sum[i] += difference;
        square[i] += difference * difference;
      }
    }
  });
  const auto n = static_cast<double>(count);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const double k = shift.values[i];
    first[i] = sum[i] + n * k;
    second[i] = square[i] + 2 * k * sum[i] + n * k * k;
  }
}

// Sums over the block and writes the results where `merge` reads them.
template <int N>
__device__ void store_partials(const double (&first)[N], const double (&second)[N], double* shared,
                               int64_t columns, double* partials) {
  double* slab = partials + int64_t{blockIdx.y} * 2 * columns;
  add_over_block(first, shared, [&](int64_t column, double sum) {
    if (column < columns) slab[column] = sum;
  });
  add_over_block(second, shared, [&](int64_t column, double sum) {
    if (column < columns) slab[columns + column] = sum;
  });
}

// Sums over slabs and calls f(column, first sum, second sum) once for every column.
template <class F>
__global__ void __launch_bounds__(kColumnThreads)
    merge_kernel(const double* partials, int64_t slabs, int64_t columns, F f) {
  __shared__ double shared[2 * kColumnThreads];
  const int64_t column = int64_t{blockIdx.x} * kMergedColumns + threadIdx.x;
  double sums[2] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t slab = threadIdx.y; slab < slabs; slab += blockDim.y) {
      sums[0] += partials[2 * slab * columns + column];
      sums[1] += partials[(2 * slab + 1) * columns + column];
    }
  }
  add_over_block(sums, shared, [&](int64_t, double sum) {
    // The first half of a warp has the first sums, the second half the second sums.
    const double second = __shfl_down_sync(kAllLanes, sum, kMergedColumns);
    if (threadIdx.y == 0 && column < columns) f(column, sum, second);
  });
}

template <class F>
void merge(const char* name, Stream& stream, const void* partials, int64_t slabs, int64_t columns,
           const F& f) {
  // At most one thread per slab; add_over_block requires one for each of the two sums.
  const auto height =
      static_cast<unsigned>(std::clamp<int64_t>(slabs, 2, kColumnThreads / kMergedColumns));
  const trireme::cuda::Grid grid{
      .blocks = dim3(static_cast<unsigned>((columns + kMergedColumns - 1) / kMergedColumns)),
      .threads = dim3(kMergedColumns, height)};
  trireme::cuda::launch(name, merge_kernel<F>, grid, stream, static_cast<const double*>(partials),
                        slabs, columns, f);
}

// Function for `merge` that stores the sums of dy and of dy * xhat.
struct StoreGradients {
  float *dgamma, *dbeta;  // dbeta may be null

  __device__ void operator()(int64_t column, double sum, double product) const {
    if (dbeta) dbeta[column] = static_cast<float>(sum);
    dgamma[column] = static_cast<float>(product);
  }
};

}  // namespace trireme::ops::cuda
