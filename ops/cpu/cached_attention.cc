#include "ops/cached_attention.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/attention_rows.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

// s[j] = the product of the query and key j; keys are `stride` elements apart.
template <class T>
TRIREME_VECTORIZED void scores_row(const T* query, const T* keys, int64_t stride, int64_t count,
                                   int64_t dim, float* s) {
  for (int64_t j = 0; j < count; ++j) {
    const T* key = keys + j * stride;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < dim; ++i) sum += to_float(query[i]) * to_float(key[i]);
    s[j] = sum;
  }
}

// sum = the sum of the values, weighted with p.
template <class T>
TRIREME_VECTORIZED void weighted_sum(const float* p, const T* values, int64_t stride, int64_t count,
                                     int64_t dim, float* sum) {
  std::fill_n(sum, dim, 0.0f);
  for (int64_t j = 0; j < count; ++j) {
    const T* value = values + j * stride;
#pragma omp simd
    for (int64_t i = 0; i < dim; ++i) sum[i] += p[j] * to_float(value[i]);
  }
}

struct Sizes {
  int64_t samples, length, row;  // of qkv
  int64_t positions, cache_row;
  int64_t heads, kv_heads, dim;
};

// Writes the keys and values of all rows to the cache.
template <class T>
void append(const Sizes& n, const T* qkv, const int32_t* starts, T* cache) {
  parallel_for(n.samples * n.length, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t sample = r / n.length, position = starts[sample] + r % n.length;
      if (position >= n.positions) continue;
      std::memcpy(cache + (sample * n.positions + position) * n.cache_row,
                  qkv + r * n.row + n.heads * n.dim, static_cast<size_t>(n.cache_row) * sizeof(T));
    }
  });
}

// Computes all rows of a head. `first_keys` may be null. `scores` has room for as many elements
// as the cache has positions, in whole vectors; `sum` has as many as a head.
template <class T>
void attend(const Sizes& n, float scale, int64_t head, int64_t start, const int32_t* first_keys,
            const T* qkv, const T* cache, float* scores, float* sum, T* y) {
  const T* keys = cache + head * n.kv_heads / n.heads * n.dim;
  const T* values = keys + n.kv_heads * n.dim;
  for (int64_t t = 0; t < n.length; ++t) {
    T* out = y + (t * n.heads + head) * n.dim;
    if (start + t >= n.positions) {
      std::fill_n(out, n.dim, from_float<T>(0));
      continue;
    }
    const int64_t first = first_keys ? first_keys[t] : 0, seen = start + t + 1 - first;
    scores_row(qkv + t * n.row + head * n.dim, keys + first * n.cache_row, n.cache_row, seen, n.dim,
               scores);
    softmax_row(scores, scores, {0, seen}, seen, scale);
    weighted_sum(scores, values + first * n.cache_row, n.cache_row, seen, n.dim, sum);
    cast_row(sum, out, n.dim);
  }
}

}  // namespace

Plan plan(const CachedAttention& op, const EnginePtr&, Specs given) {
  using Op = CachedAttention;
  const Shape &qkv = given[Op::kQkv].shape, &cache = given[Op::kCache].shape;
  const Sizes n{.samples = qkv[0],
                .length = qkv[1],
                .row = qkv[2],
                .positions = cache[1],
                .cache_row = cache[2],
                .heads = op.shape.heads,
                .kv_heads = op.shape.kv_heads,
                .dim = cache[2] / (2 * op.shape.kv_heads)};
  const int64_t tasks = n.samples * n.heads, most_scores = round_up(n.positions, kLanes);
  const int64_t scratch_of_task = most_scores + n.dim;
  return with_element(given[Op::kQkv].dtype, [&]<class T>(T) -> Plan {
    const auto work = [=, scale = op.shape.scale](Args args, void* scratch) {
      const auto* rows = pointer<const T>(args, Op::kQkv);
      const auto* starts = pointer<const int32_t>(args, Op::kStarts);
      const auto* first_keys = pointer<const int32_t>(args, Op::kFirstKeys);
      auto* cached = pointer<T>(args, Op::kCache);
      auto* y = pointer<T>(args, Op::kY);
      append(n, rows, starts, cached);
      parallel_for(tasks, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t sample = task / n.heads;
          float* scores = static_cast<float*>(scratch) + task * scratch_of_task;
          attend(n, scale, task % n.heads, starts[sample],
                 first_keys ? first_keys + sample * n.length : nullptr,
                 rows + sample * n.length * n.row, cached + sample * n.positions * n.cache_row,
                 scores, scores + most_scores, y + sample * n.length * n.heads * n.dim);
        }
      });
    };
    return host_op(in_row_major(given), work,
                   static_cast<size_t>(tasks * scratch_of_task) * sizeof(float));
  });
}

}  // namespace trireme::ops::cpu
