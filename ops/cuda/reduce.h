// Reductions over the threads of a warp or block, always in the same order, so that results are
// reproducible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/alignment.h"
#include "core/cuda/launch.h"

namespace trireme::ops::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = ~0u;
inline constexpr int kMaxThreads = 1024;  // per block

// Returns the threads of a block that processes this many values: whole warps, one thread per value
// or `max`, because threads without a value only delay the others.
inline dim3 block_for(int64_t values, int64_t max) {
  return dim3(
      static_cast<unsigned>(std::min(round_up(std::max(values, int64_t{1}), kWarpSize), max)));
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// NaN is propagated.
struct Max {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

// Combines the values of all lanes and returns the result to all lanes.
template <class T, class F>
__device__ T warp_reduce(T value, F combine) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

inline constexpr int64_t kMaxRowThreads = 512;    // per block
inline constexpr int64_t kPacksPerRowThread = 4;  // in a grid of row_grid

// Returns the grid for a matrix that is processed row by row: for short rows, threads.y rows per
// block with one warp each; otherwise one block per row.
inline trireme::cuda::Grid row_grid(int64_t rows, int64_t packs_per_row) {
  constexpr unsigned kRowsPerBlock = 8;
  const int64_t wanted = (packs_per_row + kPacksPerRowThread - 1) / kPacksPerRowThread;
  const auto warps = static_cast<unsigned>(
      std::min((wanted + kWarpSize - 1) / kWarpSize, kMaxRowThreads / kWarpSize));
  const dim3 threads = warps <= 1 ? dim3(kWarpSize, kRowsPerBlock) : dim3(kWarpSize * warps);
  return {.blocks = dim3(static_cast<unsigned>((rows + threads.y - 1) / threads.y)),
          .threads = threads};
}
__device__ inline int64_t row_of_thread() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }

// Calls f(first) for the first of each N columns that the calling thread processes.
template <int N, class F>
__device__ void each_pack(int64_t columns, F f) {
  for (int64_t at = threadIdx.x * N; at < columns; at += blockDim.x * N) f(at);
}

// Combines the values of all threads of a row and returns the result to all of them. All of them
// must call it. Memory that they wrote before the call is visible to all of them afterwards.
template <class T, class F>
__device__ T row_reduce(T value, F combine) {
  value = warp_reduce(value, combine);
  __syncwarp();
  if (blockDim.x == kWarpSize) return value;
  __shared__ T warp_values[32];
  __syncthreads();  // previous contents have been read
  if (threadIdx.x % kWarpSize == 0) warp_values[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = warp_values[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarpSize; ++warp)
    value = combine(value, warp_values[warp]);
  return value;
}

}  // namespace trireme::ops::cuda
