// Attention as matrix products of oneDNN: a block of queries by the keys that it may see at a time,
// so that memory grows with T, not with its square. Products see whole multiples of a step of keys,
// of which there are few sizes; what lies outside of the mask is 0. The rows of a head are first
// copied to contiguous memory, in which oneDNN multiplies up to 1.5 times as fast, with rows of 0
// up to whole vectors of keys.
#include "ops/attention.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/attention_rows.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/in_f32.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/product.h"
#include "ops/cpu/simd.h"
#include "ops/cpu/tasks.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::memory;

constexpr int64_t kKeySteps = 8;  // steps of keys in a sample, at most
constexpr int64_t kKeyMultiple = 64;

struct Keys {
  int64_t begin, count;
};

// What the queries of a sample may see.
struct Mask {
  int64_t valid;              // length of the sample
  const int32_t* first_keys;  // of its queries; null: all are 0
  bool causal;

  int64_t first_key(int64_t query) const { return first_keys ? first_keys[query] : 0; }
  // Returns the keys that the query sees. If there are none, they begin at `none`.
  Keys keys(int64_t query, int64_t none) const {
    if (query >= valid) return {none, 0};
    const int64_t begin = first_key(query);
    return {begin, (causal ? std::min(query + 1, valid) : valid) - begin};
  }
};

struct Geometry {
  AttentionShape shape;
  int64_t samples, length, dim, row, y_row;
  int64_t all_keys;  // `length` in whole vectors

  Geometry(const AttentionShape& attention, const Shape& qkv)
      : shape(attention),
        samples(qkv[0]),
        length(qkv[1]),
        dim(qkv[2] / (attention.heads + 2 * attention.kv_heads)),
        row(qkv[2]),
        y_row(attention.heads * dim),
        all_keys(round_up(length, kLanes)) {}

  // Returns the queries of each block but the last. Causal attention computes fewer scores that are
  // not visible in small blocks. Other attention has blocks of one size: of at most 128 queries, or
  // more if their scores stay in the second-level cache.
  int64_t query_block() const {
    if (shape.causal) return std::min<int64_t>(length, 64);
    constexpr int64_t kQueries = 128, kScores = 40960;
    const int64_t most = std::max(kQueries, kScores / length);
    const int64_t blocks = (length + most - 1) / most;
    return (length + blocks - 1) / blocks;
  }
  int64_t key_step() const { return round_up((length + kKeySteps - 1) / kKeySteps, kKeyMultiple); }
  Mask mask(Args args, int lengths, int first_keys, int64_t sample) const {
    const auto* of_samples = pointer<const int32_t>(args, lengths);
    const auto* of_queries = pointer<const int32_t>(args, first_keys);
    return {of_samples ? of_samples[sample] : length,
            of_queries ? of_queries + sample * length : nullptr, shape.causal};
  }
  // Returns at least one step of keys: those that any of the queries first, ..., first + count - 1
  // may see, in whole steps.
  Keys keys(int64_t first, int64_t count, const Mask& mask) const {
    const int64_t step = key_step(), begin = mask.first_key(first) / step * step;
    const int64_t end = std::min(shape.causal ? first + count : length, mask.valid);
    const int64_t steps = std::max<int64_t>(1, (end - begin + step - 1) / step);
    return {begin, std::min(all_keys - begin, steps * step)};
  }
  int64_t heads_per_kv() const { return shape.heads / shape.kv_heads; }
  int64_t q_column(int64_t head) const { return head * dim; }
  int64_t k_column(int64_t kv) const { return (shape.heads + kv) * dim; }
  int64_t v_column(int64_t kv) const { return (shape.heads + shape.kv_heads + kv) * dim; }
  // The elements of a head's rows, and of a block's scores.
  size_t head_elements() const { return static_cast<size_t>(all_keys * dim); }
  size_t score_elements() const { return static_cast<size_t>(query_block() * all_keys); }
};

// The products of one size: `queries` rows by `keys` columns.
struct ForwardProducts {
  Product scores;  // s = q k^T
  Product values;  // y = p v
  size_t scratch_bytes() const { return std::max(scores.scratch_bytes(), values.scratch_bytes()); }
};
struct BackwardProducts {
  Product scores;    // s = q k^T
  Product dvalues;   // dv += p^T dy
  Product dweights;  // dp = dy v^T
  Product dqueries;  // dq = ds k
  Product dkeys;     // dk += ds^T q
  size_t scratch_bytes() const {
    return std::max({scores.scratch_bytes(), dvalues.scratch_bytes(), dweights.scratch_bytes(),
                     dqueries.scratch_bytes(), dkeys.scratch_bytes()});
  }
};

template <class Products>
using BySize = std::map<std::pair<int64_t, int64_t>, Products>;

// Makes the products of every size that may occur, and finds the scratch memory of the largest.
template <class Products, class Make>
std::pair<BySize<Products>, size_t> make_products(const Geometry& g, bool has_lengths,
                                                  bool has_first_keys, Make make) {
  BySize<Products> all;
  size_t scratch = 0;
  const auto add = [&](int64_t queries, int64_t keys) {
    if (all.contains({queries, keys})) return;
    const auto made = all.emplace(std::pair{queries, keys}, make(queries, keys)).first;
    scratch = std::max(scratch, made->second.scratch_bytes());
  };
  const int64_t step = g.key_step(), block = g.query_block();
  for (int64_t first = 0; first < g.length; first += block) {
    const int64_t queries = std::min(block, g.length - first);
    const int64_t all_keys = g.keys(first, queries, {g.length, nullptr, g.shape.causal}).count;
    add(queries, all_keys);
    for (int64_t keys = step; has_lengths && keys < all_keys; keys += step) add(queries, keys);
    for (int64_t begin = step; has_first_keys && begin < all_keys; begin += step) {
      add(queries, all_keys - begin);
    }
  }
  return {std::move(all), scratch};
}

// Copies rows of `width` elements that lie from_stride and to_stride elements apart. CPUs do not
// fetch rows ahead by themselves if much lies between them.
template <class T>
void copy_rows(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows,
               int64_t width) {
  constexpr int64_t kAhead = 6, kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < rows; ++i) {
    const T* ahead = from + std::min(i + kAhead, rows - 1) * from_stride;
    for (int64_t j = 0; j < width; j += kLine) __builtin_prefetch(ahead + j);
    std::copy_n(from + i * from_stride, width, to + i * to_stride);
  }
}

// Copies the keys or values of a head, and adds rows of 0.
template <class T>
void copy_keys(const Geometry& g, const T* from, T* to) {
  copy_rows(from, g.row, to, g.dim, g.length, g.dim);
  std::fill_n(to + g.length * g.dim, (g.all_keys - g.length) * g.dim, from_float<T>(0));
}

// Returns what a query sees of the keys of its block.
Visible visible(const Mask& mask, int64_t query, Keys keys) {
  const Keys seen = mask.keys(query, keys.begin);
  const int64_t begin = seen.begin - keys.begin;
  return {begin, begin + seen.count};
}

template <class T>
Plan plan_forward(const AttentionForward& op, const EnginePtr& engine, Specs given) {
  using Op = AttentionForward;
  const Geometry g(op.shape, given[Op::kQkv].shape);
  const int64_t tasks = g.samples * g.shape.heads, threads = threads_for(tasks);
  const Matrix x{type_of<T>(), g.dim, 1};
  auto [made, product_bytes] = make_products<ForwardProducts>(
      g, !is_absent(given[Op::kLengths]), !is_absent(given[Op::kFirstKeys]),
      [&](int64_t queries, int64_t keys) -> ForwardProducts {
        const Matrix s{memory::data_type::f32, keys, 1}, p{type_of<T>(), keys, 1};
        return {Product(engine, queries, keys, g.dim, x, x.transposed(), s, false, threads),
                Product(engine, queries, g.dim, keys, p, x, x, false, threads)};
      });
  const Parts parts{g.score_elements() * sizeof(float), g.score_elements() * sizeof(T),
                    4 * g.head_elements() * sizeof(T), product_bytes};
  auto work = [=, products = std::move(made)](Args args, void* scratch) {
    auto* saved = pointer<float>(args, Op::kSaved);
    each_task(tasks, threads, [&](int64_t thread, int64_t task) {
      const int64_t sample = task / g.shape.heads, head = task % g.shape.heads;
      const int64_t kv = head / g.heads_per_kv();
      const T* rows = pointer<const T>(args, Op::kQkv) + sample * g.length * g.row;
      T* out = pointer<T>(args, Op::kY) + sample * g.length * g.y_row + head * g.dim;
      const Mask mask = g.mask(args, Op::kLengths, Op::kFirstKeys, sample);
      auto* s = parts.at<float>(scratch, thread, 0);
      auto* p = parts.at<T>(scratch, thread, 1);
      T* const q = parts.at<T>(scratch, thread, 2);
      T *const k = q + g.head_elements(), *const v = k + g.head_elements();
      T* const y = v + g.head_elements();
      auto* own = parts.at<void*>(scratch, thread, 3);
      copy_rows(rows + g.q_column(head), g.row, q, g.dim, g.length, g.dim);
      copy_keys(g, rows + g.k_column(kv), k);
      copy_keys(g, rows + g.v_column(kv), v);
      for (int64_t first = 0; first < g.length; first += g.query_block()) {
        const int64_t queries = std::min(g.query_block(), g.length - first);
        const Keys keys = g.keys(first, queries, mask);
        const ForwardProducts& product = products.at({queries, keys.count});
        product.scores.run(q + first * g.dim, k + keys.begin * g.dim, s, own, thread);
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t at = i * keys.count;
          const float log_sum_exp = softmax_row(s + at, p + at, visible(mask, first + i, keys),
                                                keys.count, g.shape.scale);
          if (saved) saved[task * g.length + first + i] = log_sum_exp;
        }
        product.values.run(p, v + keys.begin * g.dim, y + first * g.dim, own, thread);
      }
      copy_rows(y, g.dim, out, g.y_row, g.length, g.dim);
    });
  };
  return host_op(in_row_major(given), std::move(work),
                 parts.total() * static_cast<size_t>(threads));
}

// A thread has all heads of a kv head, whose sums run over the queries in order.
template <class T>
Plan plan_backward(const AttentionBackward& op, const EnginePtr& engine, Specs given) {
  using Op = AttentionBackward;
  const Geometry g(op.shape, given[Op::kQkv].shape);
  const int64_t tasks = g.samples * g.shape.kv_heads, threads = threads_for(tasks);
  const Matrix x{type_of<T>(), g.dim, 1}, sum{memory::data_type::f32, g.dim, 1};
  auto [made, product_bytes] = make_products<BackwardProducts>(
      g, !is_absent(given[Op::kLengths]), !is_absent(given[Op::kFirstKeys]),
      [&](int64_t queries, int64_t keys) -> BackwardProducts {
        const Matrix s{memory::data_type::f32, keys, 1}, p{type_of<T>(), keys, 1};
        return {Product(engine, queries, keys, g.dim, x, x.transposed(), s, false, threads),
                Product(engine, keys, g.dim, queries, p.transposed(), x, sum, true, threads),
                Product(engine, queries, keys, g.dim, x, x.transposed(), s, false, threads),
                Product(engine, queries, g.dim, keys, p, x, x, false, threads),
                Product(engine, keys, g.dim, queries, p.transposed(), x, sum, true, threads)};
      });
  const size_t sums = g.head_elements() * sizeof(float);
  const Parts parts{g.score_elements() * sizeof(float),
                    g.score_elements() * sizeof(T),
                    sums,
                    sums,
                    5 * g.head_elements() * sizeof(T),
                    product_bytes};
  auto work = [=, products = std::move(made)](Args args, void* scratch) {
    each_task(tasks, threads, [&](int64_t thread, int64_t task) {
      const int64_t sample = task / g.shape.kv_heads, kv = task % g.shape.kv_heads;
      const T* rows = pointer<const T>(args, Op::kQkv) + sample * g.length * g.row;
      T* gradients = pointer<T>(args, Op::kDqkv) + sample * g.length * g.row;
      const Mask mask = g.mask(args, Op::kLengths, Op::kFirstKeys, sample);
      auto* s = parts.at<float>(scratch, thread, 0);
      auto* p = parts.at<T>(scratch, thread, 1);
      auto* dk = parts.at<float>(scratch, thread, 2);
      auto* dv = parts.at<float>(scratch, thread, 3);
      T* const q = parts.at<T>(scratch, thread, 4);
      T *const k = q + g.head_elements(), *const v = k + g.head_elements();
      T *const dy = v + g.head_elements(), *const dq = dy + g.head_elements();
      auto* own = parts.at<void*>(scratch, thread, 5);
      std::memset(dk, 0, sums);
      std::memset(dv, 0, sums);
      copy_keys(g, rows + g.k_column(kv), k);
      copy_keys(g, rows + g.v_column(kv), v);
      for (int64_t head = kv * g.heads_per_kv(); head < (kv + 1) * g.heads_per_kv(); ++head) {
        const int64_t out = sample * g.length * g.y_row + head * g.dim;
        const T* ys = pointer<const T>(args, Op::kY) + out;
        const float* saved =
            pointer<const float>(args, Op::kSaved) + (sample * g.shape.heads + head) * g.length;
        copy_rows(rows + g.q_column(head), g.row, q, g.dim, g.length, g.dim);
        copy_rows(pointer<const T>(args, Op::kDy) + out, g.y_row, dy, g.dim, g.length, g.dim);
        for (int64_t first = 0; first < g.length; first += g.query_block()) {
          const int64_t queries = std::min(g.query_block(), g.length - first);
          const Keys keys = g.keys(first, queries, mask);
          const BackwardProducts& product = products.at({queries, keys.count});
          const int64_t at_query = first * g.dim, at_key = keys.begin * g.dim;
          product.scores.run(q + at_query, k + at_key, s, own, thread);
          for (int64_t i = 0; i < queries; ++i) {
            const int64_t at = i * keys.count;
            weights_row(s + at, p + at, visible(mask, first + i, keys), keys.count, g.shape.scale,
                        saved[first + i]);
          }
          product.dvalues.run(p, dy + at_query, dv + at_key, own, thread);
          product.dweights.run(dy + at_query, v + at_key, s, own, thread);
          for (int64_t i = 0; i < queries; ++i) {
            const float delta =
                dot_row(dy + at_query + i * g.dim, ys + (first + i) * g.y_row, g.dim);
            score_gradient_row(s + i * keys.count, p + i * keys.count, keys.count, g.shape.scale,
                               delta);
          }
          product.dqueries.run(p, k + at_key, dq + at_query, own, thread);
          product.dkeys.run(p, q + at_query, dk + at_key, own, thread);
        }
        copy_rows(dq, g.dim, gradients + g.q_column(head), g.row, g.length, g.dim);
      }
      for (int64_t t = 0; t < g.length; ++t) {
        cast_row(dk + t * g.dim, gradients + t * g.row + g.k_column(kv), g.dim);
        cast_row(dv + t * g.dim, gradients + t * g.row + g.v_column(kv), g.dim);
      }
    });
  };
  return host_op(in_row_major(given), std::move(work),
                 parts.total() * static_cast<size_t>(threads));
}

}  // namespace

Plan plan(const AttentionForward& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  return with_element(given[AttentionForward::kQkv].dtype,
                      [&]<class T>(T) { return plan_forward<T>(op, engine, given); });
}

Plan plan(const AttentionBackward& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  return with_element(given[AttentionBackward::kQkv].dtype,
                      [&]<class T>(T) { return plan_backward<T>(op, engine, given); });
}

}  // namespace trireme::ops::cpu
