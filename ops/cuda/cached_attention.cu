// The keys of a query are divided among the warps of a block, whose results are combined at the
// end, always in the same order. Each lane looks at a key of its own.
#include <limits>

#include "ops/cached_attention.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/heads.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kRowWarps = 4;
constexpr int kBlocks = 4;  // resident per multiprocessor; ptxas spills registers for more

struct CachedRows {
  const int32_t* starts;
  const int32_t* first_keys;  // [B, T]; null: all are 0
  int64_t length, positions;  // of qkv, of the cache
  int64_t heads, kv_heads;
  int dim;
  float scale;

  __device__ int64_t row() const { return (heads + 2 * kv_heads) * dim; }
  __device__ int64_t cache_row() const { return 2 * kv_heads * dim; }
};

// Writes the keys and values of the rows to the cache.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    append_kernel(const T* qkv, CachedRows n, int64_t rows, T* cache) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  const int64_t sample = row / n.length, position = n.starts[sample] + row % n.length;
  if (position >= n.positions) return;
  const T* from = qkv + row * n.row() + n.heads * n.dim;
  T* to = cache + (sample * n.positions + position) * n.cache_row();
  each_pack<N>(n.cache_row(), [&](int64_t at) { store(to + at, load<N>(from + at)); });
}

// A block has a query of a head; softmax as it goes (Milakov and Gimelshein, arXiv:1805.02867).
template <class T, int P>
__global__ void __launch_bounds__(kRowWarps* kWarpSize, kBlocks)
    cached_attention_kernel(const T* qkv, CachedRows n, const T* cache, T* y) {
  __shared__ float query[P * kWarpSize], weights[kRowWarps][kWarpSize];
  __shared__ float largest_of[kRowWarps], total_of[kRowWarps], sum_of[kRowWarps][P * kWarpSize];
  const int64_t t = blockIdx.x, head = blockIdx.y, sample = blockIdx.z;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const float infinity = std::numeric_limits<float>::infinity();
  const int64_t position = n.starts[sample] + t;
  const int64_t seen = position < n.positions ? position + 1 : 0;
  const int64_t first_key = n.first_keys ? n.first_keys[sample * n.length + t] : 0;
  const T* q = qkv + (sample * n.length + t) * n.row() + head * n.dim;
  for (int i = static_cast<int>(threadIdx.x); i < n.dim; i += kRowWarps * kWarpSize) {
    query[i] = to_float(q[i]);
  }
  __syncthreads();
  const T* keys =
      cache + sample * n.positions * n.cache_row() + head * n.kv_heads / n.heads * n.dim;
  const T* values = keys + n.kv_heads * n.dim;
  float largest = -infinity, total = 0, sum[P] = {};
  for (int64_t first = first_key + warp * kWarpSize; first < seen; first += kRowWarps * kWarpSize) {
    float score = -infinity;
    if (first + lane < seen) {
      const T* key = keys + (first + lane) * n.cache_row();
      score = 0;
      for (int i = 0; i < n.dim; ++i) score += query[i] * to_float(key[i]);
      score *= n.scale;
    }
    const float before = largest;
    largest = Max()(before, warp_reduce(score, Max()));
    const float weight = first + lane < seen ? expf(score - largest) : 0.0f;
    const float correction = before == -infinity ? 0.0f : expf(before - largest);
    total = total * correction + warp_reduce(weight, Plus());
    weights[warp][lane] = weight;
    __syncwarp();
    const int64_t count = min(int64_t{kWarpSize}, seen - first);
#pragma unroll
    for (int i = 0; i < P; ++i) {
      sum[i] *= correction;
      if (lane + i * kWarpSize >= n.dim) break;
      for (int64_t j = 0; j < count; ++j) {
        const T* value = values + (first + j) * n.cache_row();
        sum[i] += weights[warp][j] * to_float(value[lane + i * kWarpSize]);
      }
    }
    __syncwarp();
  }
  if (lane == 0) {
    largest_of[warp] = largest;
    total_of[warp] = total;
  }
#pragma unroll
  for (int i = 0; i < P; ++i) sum_of[warp][lane + i * kWarpSize] = sum[i];
  __syncthreads();
  if (warp != 0) return;
  for (int other = 1; other < kRowWarps; ++other) largest = Max()(largest, largest_of[other]);
  total = 0;
#pragma unroll
  for (int i = 0; i < P; ++i) sum[i] = 0;
  for (int other = 0; other < kRowWarps; ++other) {
    const bool any = largest_of[other] != -infinity;
    const float factor = any ? expf(largest_of[other] - largest) : 0.0f;
    total += factor * total_of[other];
#pragma unroll
    for (int i = 0; i < P; ++i) sum[i] += factor * sum_of[other][lane + i * kWarpSize];
  }
  write_row(y + ((sample * n.length + t) * n.heads + head) * n.dim, n.dim,
            seen > 0 ? 1 / total : 0.0f, sum);
}

}  // namespace

Plan plan(const CachedAttention& op, const ContextPtr&, Specs given) {
  using Op = CachedAttention;
  const Shape &qkv = given[Op::kQkv].shape, &cache = given[Op::kCache].shape;
  const CachedRows sizes{.starts = nullptr,
                         .first_keys = nullptr,
                         .length = qkv[1],
                         .positions = cache[1],
                         .heads = op.shape.heads,
                         .kv_heads = op.shape.kv_heads,
                         .dim = static_cast<int>(cache[2] / (2 * op.shape.kv_heads)),
                         .scale = op.shape.scale};
  const int64_t rows = qkv[0] * qkv[1], cache_row = cache[2];
  const trireme::cuda::Grid heads{
      .blocks = dim3(static_cast<unsigned>(qkv[1]), static_cast<unsigned>(op.shape.heads),
                     static_cast<unsigned>(qkv[0])),
      .threads = dim3(kRowWarps * kWarpSize)};
  return with_head_dim(
      given[Op::kQkv].dtype, sizes.dim,
      [&]<class T, int P>(T, std::integral_constant<int, P>) -> Plan {
        constexpr int kPack = kPackSize<T>;
        const bool packed = sizes.dim % kPack == 0;
        const auto append = packed ? append_kernel<T, kPack> : append_kernel<T, 1>;
        const trireme::cuda::Grid copies = row_grid(rows, cache_row / (packed ? kPack : 1));
        return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
          CachedRows n = sizes;
          n.starts = pointer<int32_t>(args, Op::kStarts);
          n.first_keys = pointer<int32_t>(args, Op::kFirstKeys);
          const auto* x = pointer<T>(args, Op::kQkv);
          auto* cached = pointer<T>(args, Op::kCache);
          trireme::cuda::launch("cached_attention", append, copies, stream, x, n, rows, cached);
          trireme::cuda::launch("cached_attention", cached_attention_kernel<T, P>, heads, stream, x,
                                n, cached, pointer<T>(args, Op::kY));
        });
      });
}

}  // namespace trireme::ops::cuda
