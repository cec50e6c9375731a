// Loops over a row of scores or of a head, for attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/alignment.h"
#include "core/vectorized.h"
#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

// The columns begin, ..., end - 1 of a row of scores.
struct Visible {
  int64_t begin, end;
};

// The vectors that contain what is visible. Loops run over all of their elements, because single
// ones at the ends take as long as several vectors. Rows need room for the last vector.
TRIREME_INLINE inline Visible whole_vectors(Visible visible) {
  return {visible.begin / kLanes * kLanes, round_up(visible.end, kLanes)};
}

// Sets the elements of these vectors that are not visible to `value`.
TRIREME_INLINE inline void set_invisible(float* row, Visible visible, Visible vectors,
                                         float value) {
  for (int64_t j = vectors.begin; j < visible.begin; ++j) row[j] = value;
  for (int64_t j = visible.end; j < vectors.end; ++j) row[j] = value;
}

// p = softmax of the visible scores, 0 in the other columns; returns their log-sum-exp. Overwrites
// s, and p may be s. scale > 0.
template <class T>
TRIREME_VECTORIZED float softmax_row(float* s, T* p, Visible visible, int64_t columns,
                                     float scale) {
  const bool empty = visible.begin == visible.end;
  const Visible vectors = whole_vectors(visible);
  float largest = -std::numeric_limits<float>::infinity();
  set_invisible(s, visible, vectors, largest);
#pragma omp simd reduction(max : largest)
  for (int64_t j = vectors.begin; j < vectors.end; ++j) largest = s[j] > largest ? s[j] : largest;
  largest *= scale;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = vectors.begin; j < vectors.end; ++j) {
    sum += s[j] = fast_exp(s[j] * scale - largest);
  }
  set_invisible(s, visible, vectors, 0);
  const float factor = empty ? 0 : 1 / sum;
  for (int64_t j = 0; j < vectors.begin; ++j) p[j] = from_float<T>(0);
#pragma omp simd
  for (int64_t j = vectors.begin; j < vectors.end; ++j) p[j] = from_float<T>(s[j] * factor);
  for (int64_t j = vectors.end; j < columns; ++j) p[j] = from_float<T>(0);
  return empty ? 0 : largest + std::log(sum);
}

// p as in softmax_row, from the log-sum-exp.
template <class T>
TRIREME_VECTORIZED void weights_row(float* s, T* p, Visible visible, int64_t columns, float scale,
                                    float log_sum_exp) {
  const Visible vectors = whole_vectors(visible);
  set_invisible(s, visible, vectors, 0);
#pragma omp simd
  for (int64_t j = vectors.begin; j < vectors.end; ++j) {
    p[j] = from_float<T>(fast_exp(s[j] * scale - log_sum_exp));
  }
  for (int64_t j = 0; j < visible.begin; ++j) p[j] = from_float<T>(0);
  for (int64_t j = visible.end; j < columns; ++j) p[j] = from_float<T>(0);
}

// ds = scale * p * (dp - delta), written over p.
template <class T>
TRIREME_VECTORIZED void score_gradient_row(const float* dp, T* p, int64_t columns, float scale,
                                           float delta) {
#pragma omp simd
  for (int64_t j = 0; j < columns; ++j) {
    p[j] = from_float<T>(scale * to_float(p[j]) * (dp[j] - delta));
  }
}

template <class T>
TRIREME_VECTORIZED float dot_row(const T* a, const T* b, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

template <class T>
TRIREME_VECTORIZED void cast_row(const float* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

}  // namespace trireme::ops::cpu
