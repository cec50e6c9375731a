// Sorts the rows of a batch by their tokens. Rows with the same token stay in order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/cuda/launch.h"

namespace trireme::ops::cuda {

// A token and its row. Invalid tokens, and keys that fill up the array, come last.
using TokenKey = uint64_t;
__host__ __device__ inline TokenKey token_key(uint32_t token, uint32_t row) {
  return TokenKey{token} << 32 | row;
}
__device__ inline uint32_t token_of(TokenKey key) { return static_cast<uint32_t>(key >> 32); }
__device__ inline int64_t row_of(TokenKey key) { return static_cast<uint32_t>(key); }

// The number of keys that are sorted: a power of two.
inline int64_t token_keys(int64_t rows) {
  return std::max<int64_t>(2, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
}

inline constexpr int64_t kSortChunk = 2048;  // keys that a block sorts in shared memory

// A step of a bitonic sort (Batcher, 1968): orders the pairs of keys that are `distance` apart, in
// ascending order where `run` is not a bit of their index. `first` is the index of keys[0].
__device__ inline void order_pair(TokenKey* keys, int64_t pair, int64_t distance, int64_t run,
                                  int64_t first) {
  const int64_t at = pair / distance * 2 * distance + pair % distance;
  const bool ascending = ((first + at) & run) == 0;
  if ((keys[at] > keys[at + distance]) != ascending) return;
  const TokenKey key = keys[at];
  keys[at] = keys[at + distance];
  keys[at + distance] = key;
}

// A block sorts its chunk (kRuns: all runs in it; otherwise the last steps of `run`).
template <bool kRuns>
__global__ void __launch_bounds__(kSortChunk / 2)
    sort_chunk_kernel(const int32_t* tokens, int64_t rows, int64_t run, TokenKey* keys) {
  __shared__ TokenKey chunk[kSortChunk];
  const int64_t count = 2 * int64_t{blockDim.x}, first = blockIdx.x * count;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int64_t row = first + i;
    chunk[i] = !kRuns ? keys[row]
                      : token_key(row < rows ? static_cast<uint32_t>(tokens[row]) : ~0u,
                                  static_cast<uint32_t>(row));
  }
  for (int64_t r = kRuns ? 2 : run; r <= (kRuns ? count : run); r *= 2) {
    for (int64_t distance = min(r, count) / 2; distance > 0; distance /= 2) {
      __syncthreads();
      order_pair(chunk, threadIdx.x, distance, r, first);
    }
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) keys[first + i] = chunk[i];
}

__global__ inline void __launch_bounds__(kSortChunk / 2)
    order_pairs_kernel(TokenKey* keys, int64_t distance, int64_t run) {
  order_pair(keys, int64_t{blockIdx.x} * blockDim.x + threadIdx.x, distance, run, 0);
}

// Writes the sorted keys of the rows to `keys` [token_keys(rows)].
inline void sort_tokens(const char* name, Stream& stream, const int32_t* tokens, int64_t rows,
                        TokenKey* keys) {
  const int64_t count = token_keys(rows), chunk = std::min(count, kSortChunk);
  const trireme::cuda::Grid grid{.blocks = dim3(static_cast<unsigned>(count / chunk)),
                                 .threads = dim3(static_cast<unsigned>(chunk / 2))};
  trireme::cuda::launch(name, sort_chunk_kernel<true>, grid, stream, tokens, rows, int64_t{0},
                        keys);
  for (int64_t run = 2 * chunk; run <= count; run *= 2) {
    for (int64_t distance = run / 2; distance >= chunk; distance /= 2) {
      trireme::cuda::launch(name, order_pairs_kernel, grid, stream, keys, distance, run);
    }
    trireme::cuda::launch(name, sort_chunk_kernel<false>, grid, stream, tokens, rows, run, keys);
  }
}

}  // namespace trireme::ops::cuda
