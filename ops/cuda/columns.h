// Two sums for each column of a matrix [rows, columns], columns fastest, at the speed of memory:
// normalisation needs little else. Activations in channels-last order are such a matrix, with a
// row for each place.
//
// A block has a tile of columns and every slabs-th chunk of rows. Its threads keep their columns,
// a pack of them each, so that what belongs to columns stays in registers. Sums are kept by thread
// in float, and added up in double precision: first over the block (add_over_block), then, in a
// kernel of their own, over the slabs (merge).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/launch.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/reduce.h"

namespace trireme::ops::cuda {

inline constexpr int kColumnThreads = 512;
inline constexpr int kColumnBlocks = 2;   // that a multiprocessor holds at a time, if no others
inline constexpr int kPacksPerTile = 32;  // at most
inline constexpr int kMergedColumns = 16;

// As many blocks as the device holds at a time, `resident` a multiprocessor, or fewer.
struct ColumnGrid {
  ColumnGrid(int64_t rows, int64_t all_columns, int pack, int rows_per_thread, int resident,
             Device& device)
      : columns(all_columns) {
    const int64_t packs = columns / pack;
    const int64_t tiles = (packs + kPacksPerTile - 1) / kPacksPerTile;
    const int64_t width = (packs + tiles - 1) / tiles;
    const int64_t height = kColumnThreads / width;
    const int64_t chunks = (rows + height * rows_per_thread - 1) / (height * rows_per_thread);
    const int64_t blocks = int64_t{resident} * trireme::cuda::properties(device).multiprocessors;
    slabs = std::max<int64_t>(1, std::min(chunks, blocks / tiles));
    grid = {.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slabs)),
            .threads = dim3(static_cast<unsigned>(width), static_cast<unsigned>(height))};
  }
  // Two sums for each slab and column.
  size_t partial_bytes() const { return static_cast<size_t>(2 * slabs * columns) * sizeof(double); }

  int64_t columns, slabs;
  trireme::cuda::Grid grid;
};

// The first of the calling thread's columns. May lie beyond the last.
template <int N>
__device__ int64_t first_column() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
}

// Calls f(row) for the first of every kRows rows, blockDim.y apart, that the calling thread is to
// look at; whether the others exist is for f to see. Backwards, what has been read last by an
// earlier kernel comes first, as it may still be in cache.
template <int kRows, bool kBackwards, class F>
__device__ void each_row(int64_t rows, F f) {
  const int64_t chunk = int64_t{blockDim.y} * kRows;
  const int64_t chunks = (rows + chunk - 1) / chunk;
  for (int64_t i = blockIdx.y; i < chunks; i += gridDim.y) {
    f((kBackwards ? chunks - 1 - i : i) * chunk + threadIdx.y);
  }
}

// The sum over the block's rows. The threads' numbers come in, column by column; it calls
// f(column, sum), by one thread for every column of the tile, also for those beyond the last.
// `shared` has room for N numbers a thread. All threads of the block call it.
template <int N, class F>
__device__ void add_over_block(const double (&values)[N], double* shared, F f) {
  const unsigned threads = blockDim.x * blockDim.y, columns = blockDim.x * N;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const unsigned helpers = blockDim.y / N;  // threads for each column: at least one
  const unsigned column = thread % columns, helper = thread / columns;
  __syncthreads();  // what is there has been read
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

// Writes what add_over_block found to where `merge` looks for it.
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

// Calls f(column, first sum, second sum) once for every column.
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
    // The first sums lie in the first half of a warp, the second sums in the other.
    const double second = __shfl_down_sync(kAllLanes, sum, kMergedColumns);
    if (threadIdx.y == 0 && column < columns) f(column, sum, second);
  });
}

template <class F>
void merge(const char* name, Stream& stream, const void* partials, int64_t slabs, int64_t columns,
           const F& f) {
  const trireme::cuda::Grid grid{
      .blocks = dim3(static_cast<unsigned>((columns + kMergedColumns - 1) / kMergedColumns)),
      .threads = dim3(kMergedColumns, kColumnThreads / kMergedColumns)};
  trireme::cuda::launch(name, merge_kernel<F>, grid, stream, static_cast<const double*>(partials),
                        slabs, columns, f);
}

}  // namespace trireme::ops::cuda
