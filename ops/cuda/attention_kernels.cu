// Attention with plain arithmetic, for every dtype and on every GPU. A warp has a few rows of its
// own (queries or keys); its lanes each look at another row (a key or a query) of a tile in shared
// memory. Nothing of size T x T is stored, and sums always run in the same order.
#include <limits>

#include "ops/choose_layouts.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/element.h"
#include "ops/cuda/heads.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRowsPerWarp = 2;
constexpr int kBlockRows = kWarps * kRowsPerWarp;
constexpr int kTileRows = kWarpSize;
// Resident blocks per multiprocessor. Without it, ptxas spills registers for more blocks than fit.
constexpr int kGradientBlocks = 6;

struct Heads {
  const int32_t* lengths;     // of the samples; null: all are `length`
  const int32_t* first_keys;  // of the queries [B, T]; null: all are 0
  int64_t length;
  int dim;
  int64_t heads, kv_heads;
  float scale;
  bool causal;

  __device__ int64_t row() const { return (heads + 2 * kv_heads) * dim; }
  __device__ int64_t y_row() const { return heads * dim; }
  __device__ int64_t kv_of(int64_t head) const { return head * kv_heads / heads; }
  __device__ int64_t valid(int64_t sample) const { return lengths ? lengths[sample] : length; }
  __device__ int64_t first_key(int64_t sample, int64_t query) const {
    return first_keys ? first_keys[sample * length + query] : 0;
  }
  // Where the row of position 0 begins.
  __device__ int64_t q(int64_t sample, int64_t head) const {
    return sample * length * row() + head * dim;
  }
  __device__ int64_t k(int64_t sample, int64_t kv) const { return q(sample, heads + kv); }
  __device__ int64_t v(int64_t sample, int64_t kv) const {
    return q(sample, heads + kv_heads + kv);
  }
  __device__ int64_t y(int64_t sample, int64_t head) const {
    return sample * length * y_row() + head * dim;
  }
  __device__ int64_t saved(int64_t sample, int64_t head) const {
    return (sample * heads + head) * length;
  }
  __device__ bool sees(int64_t sample, int64_t query, int64_t key, int64_t valid) const {
    return query < valid && key < valid && (!causal || key <= query) &&
           key >= first_key(sample, query);
  }
};

// Rows of up to kWarpSize * P elements in shared memory, one bank apart.
template <int kRows, int P>
struct Tile {
  static constexpr int kPitch = kWarpSize * P + 1;
  float values[kRows * kPitch];

  __device__ const float* row(int64_t i) const { return values + i * kPitch; }
  // Rows first, first + 1, ... of a matrix, and zeros from row `end` on. All threads of the block
  // call it, between two __syncthreads.
  template <class T>
  __device__ void read(const T* matrix, int64_t stride, int64_t first, int64_t end, int64_t dim) {
    for (int64_t i = threadIdx.x; i < kRows * dim; i += blockDim.x) {
      const int64_t r = i / dim, column = i % dim;
      values[r * kPitch + column] =
          first + r < end ? to_float(matrix[(first + r) * stride + column]) : 0.0f;
    }
  }
};

__device__ inline float dot(const float* a, const float* b, int count) {
  float sum = 0;
#pragma unroll 4
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// sum[i] += over the tile's rows j: weights[j] * tile[j][lane + i * kWarpSize].
template <int P>
__device__ void accumulate(const float* weights, const Tile<kTileRows, P>& tile, int64_t dim,
                           float (&sum)[P]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int i = 0; i < P; ++i) {
    if (lane + i * kWarpSize >= dim) break;
#pragma unroll 4
    for (int j = 0; j < kTileRows; ++j) {
      sum[i] += weights[j] * tile.row(j)[lane + i * kWarpSize];
    }
  }
}

// A block has kBlockRows queries of a head; softmax as it goes (Milakov and Gimelshein,
// arXiv:1805.02867).
template <class T, int P>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    attention_forward_kernel(const T* qkv, Heads h, T* y, float* saved) {
  __shared__ Tile<kBlockRows, P> queries;
  __shared__ Tile<kTileRows, P> keys, values;
  __shared__ float weights[kWarps][kTileRows];
  const int64_t head = blockIdx.y, sample = blockIdx.z, kv = h.kv_of(head);
  const int64_t begin = int64_t{blockIdx.x} * kBlockRows, valid = h.valid(sample);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const float infinity = std::numeric_limits<float>::infinity();
  queries.read(qkv + h.q(sample, head), h.row(), begin, h.length, h.dim);
  float largest[kRowsPerWarp], total[kRowsPerWarp] = {}, sum[kRowsPerWarp][P] = {};
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) largest[r] = -infinity;
  const int64_t end = h.causal ? min(valid, begin + kBlockRows) : valid;
  for (int64_t first = h.first_key(sample, begin); first < end; first += kTileRows) {
    __syncthreads();
    keys.read(qkv + h.k(sample, kv), h.row(), first, end, h.dim);
    values.read(qkv + h.v(sample, kv), h.row(), first, end, h.dim);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const int row = warp * kRowsPerWarp + r;
      const bool seen = h.sees(sample, begin + row, first + lane, valid);
      const float score = seen ? h.scale * dot(queries.row(row), keys.row(lane), h.dim) : -infinity;
      const float before = largest[r];
      largest[r] = Max()(before, warp_reduce(score, Max()));
      const float weight = seen ? expf(score - largest[r]) : 0.0f;
      const float correction = before == -infinity ? 0.0f : expf(before - largest[r]);
      total[r] = total[r] * correction + warp_reduce(weight, Plus());
#pragma unroll
      for (int i = 0; i < P; ++i) sum[r][i] *= correction;
      weights[warp][lane] = weight;
      __syncwarp();
      accumulate<P>(weights[warp], values, h.dim, sum[r]);
      __syncwarp();
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t query = begin + warp * kRowsPerWarp + r;
    if (query >= h.length) break;
    const bool any = total[r] != 0;
    write_row(y + h.y(sample, head) + query * h.y_row(), h.dim, any ? 1 / total[r] : 0.0f, sum[r]);
    if (saved && lane == 0) {
      saved[h.saved(sample, head) + query] = any ? largest[r] + logf(total[r]) : 0.0f;
    }
  }
}

// delta [B, heads, T]: the products of dy and y. A warp has a query.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    attention_delta_kernel(const T* y, const T* dy, Heads h, float* delta) {
  const int64_t head = blockIdx.y, sample = blockIdx.z;
  const int64_t query = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (query >= h.length) return;
  const int64_t at = h.y(sample, head) + query * h.y_row();
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarpSize; i < h.dim; i += kWarpSize) {
    sum += to_float(y[at + i]) * to_float(dy[at + i]);
  }
  sum = warp_reduce(sum, Plus());
  if (threadIdx.x % kWarpSize == 0) delta[h.saved(sample, head) + query] = sum;
}

// The softmax and the gradient of a score.
struct Weight {
  float p, ds;
};
__device__ inline Weight weight_of(const Heads& h, bool seen, float product, float saved,
                                   float dproduct, float delta) {
  if (!seen) return {0, 0};
  const float p = expf(h.scale * product - saved);
  return {p, h.scale * p * (dproduct - delta)};
}

// dq. A block has kBlockRows queries of a head.
template <class T, int P>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    attention_dq_kernel(const T* qkv, const T* dy, const float* saved, const float* delta, Heads h,
                        T* dqkv) {
  __shared__ Tile<kBlockRows, P> queries, dys;
  __shared__ Tile<kTileRows, P> keys, values;
  __shared__ float weights[kWarps][kTileRows];
  const int64_t head = blockIdx.y, sample = blockIdx.z, kv = h.kv_of(head);
  const int64_t begin = int64_t{blockIdx.x} * kBlockRows, valid = h.valid(sample);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  queries.read(qkv + h.q(sample, head), h.row(), begin, h.length, h.dim);
  dys.read(dy + h.y(sample, head), h.y_row(), begin, h.length, h.dim);
  float sum[kRowsPerWarp][P] = {};
  const int64_t end = h.causal ? min(valid, begin + kBlockRows) : valid;
  for (int64_t first = h.first_key(sample, begin); first < end; first += kTileRows) {
    __syncthreads();
    keys.read(qkv + h.k(sample, kv), h.row(), first, end, h.dim);
    values.read(qkv + h.v(sample, kv), h.row(), first, end, h.dim);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const int row = warp * kRowsPerWarp + r;
      const bool seen = h.sees(sample, begin + row, first + lane, valid);
      const int64_t at = h.saved(sample, head) + (seen ? begin + row : 0);
      weights[warp][lane] =
          weight_of(h, seen, dot(queries.row(row), keys.row(lane), h.dim), saved[at],
                    dot(dys.row(row), values.row(lane), h.dim), delta[at])
              .ds;
      __syncwarp();
      accumulate<P>(weights[warp], keys, h.dim, sum[r]);
      __syncwarp();
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t query = begin + warp * kRowsPerWarp + r;
    if (query >= h.length) break;
    write_row(dqkv + h.q(sample, head) + query * h.row(), h.dim, 1.0f, sum[r]);
  }
}

// dk and dv. A block has kBlockRows keys of a kv head, and adds up over all heads that read it.
template <class T, int P>
__global__ void __launch_bounds__(kWarps* kWarpSize, kGradientBlocks)
    attention_dkv_kernel(const T* qkv, const T* dy, const float* saved, const float* delta, Heads h,
                         T* dqkv) {
  __shared__ Tile<kBlockRows, P> keys, values;
  __shared__ Tile<kTileRows, P> queries, dys;
  __shared__ float weights[kWarps][2][kTileRows];
  const int64_t kv = blockIdx.y, sample = blockIdx.z, group = h.heads / h.kv_heads;
  const int64_t begin = int64_t{blockIdx.x} * kBlockRows, valid = h.valid(sample);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  keys.read(qkv + h.k(sample, kv), h.row(), begin, h.length, h.dim);
  values.read(qkv + h.v(sample, kv), h.row(), begin, h.length, h.dim);
  float dk[kRowsPerWarp][P] = {}, dv[kRowsPerWarp][P] = {};
  for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
    for (int64_t first = h.causal ? begin : 0; first < valid; first += kTileRows) {
      // The queries from here on see only later keys.
      if (h.first_key(sample, first) >= begin + kBlockRows) break;
      __syncthreads();
      queries.read(qkv + h.q(sample, head), h.row(), first, valid, h.dim);
      dys.read(dy + h.y(sample, head), h.y_row(), first, valid, h.dim);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        const int row = warp * kRowsPerWarp + r;
        const bool seen = h.sees(sample, first + lane, begin + row, valid);
        const int64_t at = h.saved(sample, head) + (seen ? first + lane : 0);
        const Weight weight =
            weight_of(h, seen, dot(queries.row(lane), keys.row(row), h.dim), saved[at],
                      dot(dys.row(lane), values.row(row), h.dim), delta[at]);
        weights[warp][0][lane] = weight.p;
        weights[warp][1][lane] = weight.ds;
        __syncwarp();
        accumulate<P>(weights[warp][0], dys, h.dim, dv[r]);
        accumulate<P>(weights[warp][1], queries, h.dim, dk[r]);
        __syncwarp();
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int64_t key = begin + warp * kRowsPerWarp + r;
    if (key >= h.length) break;
    write_row(dqkv + h.k(sample, kv) + key * h.row(), h.dim, 1.0f, dk[r]);
    write_row(dqkv + h.v(sample, kv) + key * h.row(), h.dim, 1.0f, dv[r]);
  }
}

Heads heads_of(const AttentionShape& shape, const Shape& qkv) {
  const int64_t dim = qkv[2] / (shape.heads + 2 * shape.kv_heads);
  return {nullptr,     nullptr,        qkv[1],      static_cast<int>(dim),
          shape.heads, shape.kv_heads, shape.scale, shape.causal};
}

// Blocks of `rows` positions, for every head and sample.
trireme::cuda::Grid head_grid(const Shape& qkv, int64_t heads, int64_t rows) {
  return {.blocks = dim3(static_cast<unsigned>((qkv[1] + rows - 1) / rows),
                         static_cast<unsigned>(heads), static_cast<unsigned>(qkv[0])),
          .threads = dim3(kWarps * kWarpSize)};
}

constexpr int kClearThreads = 256;
constexpr unsigned kClearBlocks = 32;  // of a sample

__global__ void valid_lengths_kernel(const int32_t* lengths, int64_t samples, int32_t length,
                                     int32_t* valid) {
  for (int64_t i = threadIdx.x; i < samples; i += blockDim.x) {
    valid[i] = lengths[i] > 0 ? lengths[i] : length;
  }
}

template <class T>
__global__ void __launch_bounds__(kClearThreads)
    clear_padding_kernel(const int32_t* lengths, int64_t heads, int64_t length, int64_t width,
                         T* to) {
  const int64_t sample = blockIdx.y, elements = length * width;
  const int64_t padding = (length - lengths[sample]) * width;  // of a head
  to += sample * heads * elements;
  const int64_t step = int64_t{gridDim.x} * kClearThreads;
  for (int64_t i = int64_t{blockIdx.x} * kClearThreads + threadIdx.x; i < heads * padding;
       i += step) {
    to[(i / padding + 1) * elements - padding + i % padding] = from_float<T>(0.0f);
  }
}

}  // namespace

void encode_valid_lengths(Stream& stream, const int32_t* lengths, int64_t samples, int64_t length,
                          int32_t* valid) {
  trireme::cuda::launch("valid_lengths", valid_lengths_kernel,
                        {.blocks = dim3(1), .threads = dim3(kClearThreads)}, stream, lengths,
                        samples, static_cast<int32_t>(length), valid);
}

void clear_padding(Stream& stream, const PaddedRows& rows, const int32_t* lengths, void* to) {
  with_element(rows.dtype, [&]<class T>(T) {
    trireme::cuda::launch("clear_padding", clear_padding_kernel<T>,
                          {.blocks = dim3(kClearBlocks, static_cast<unsigned>(rows.samples)),
                           .threads = dim3(kClearThreads)},
                          stream, lengths, rows.heads, rows.length, rows.width,
                          static_cast<T*>(to));
  });
}

Plan plan_attention_kernels(const AttentionForward& op, Specs given) {
  using Op = AttentionForward;
  const Shape qkv = given[Op::kQkv].shape;
  const Heads heads = heads_of(op.shape, qkv);
  return with_head_dim(
      given[Op::kQkv].dtype, heads.dim,
      [&]<class T, int P>(T, std::integral_constant<int, P>) -> Plan {
        return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
          Heads h = heads;
          h.lengths = pointer<int32_t>(args, Op::kLengths);
          h.first_keys = pointer<int32_t>(args, Op::kFirstKeys);
          trireme::cuda::launch("attention_forward", attention_forward_kernel<T, P>,
                                head_grid(qkv, h.heads, kBlockRows), stream,
                                pointer<T>(args, Op::kQkv), h, pointer<T>(args, Op::kY),
                                pointer<float>(args, Op::kSaved));
        });
      });
}

Plan plan_attention_kernels(const AttentionBackward& op, Specs given) {
  using Op = AttentionBackward;
  const Shape qkv = given[Op::kQkv].shape;
  const Heads heads = heads_of(op.shape, qkv);
  const auto delta_bytes = static_cast<size_t>(given[Op::kSaved].shape.elements()) * sizeof(float);
  return with_head_dim(given[Op::kQkv].dtype, heads.dim,
                       [&]<class T, int P>(T, std::integral_constant<int, P>) -> Plan {
                         const auto work = [=](Stream& stream, Args args, void* scratch) {
                           Heads h = heads;
                           h.lengths = pointer<int32_t>(args, Op::kLengths);
                           h.first_keys = pointer<int32_t>(args, Op::kFirstKeys);
                           const auto* x = pointer<T>(args, Op::kQkv);
                           const auto* dy = pointer<T>(args, Op::kDy);
                           const auto* saved = pointer<float>(args, Op::kSaved);
                           auto* dqkv = pointer<T>(args, Op::kDqkv);
                           auto* delta = static_cast<float*>(scratch);
                           trireme::cuda::launch("attention_backward", attention_delta_kernel<T>,
                                                 head_grid(qkv, h.heads, kWarps), stream,
                                                 pointer<T>(args, Op::kY), dy, h, delta);
                           trireme::cuda::launch("attention_backward", attention_dq_kernel<T, P>,
                                                 head_grid(qkv, h.heads, kBlockRows), stream, x, dy,
                                                 saved, delta, h, dqkv);
                           trireme::cuda::launch("attention_backward", attention_dkv_kernel<T, P>,
                                                 head_grid(qkv, h.kv_heads, kBlockRows), stream, x,
                                                 dy, saved, delta, h, dqkv);
                         };
                         return function_op(in_row_major(given), work, delta_bytes);
                       });
}

}  // namespace trireme::ops::cuda
