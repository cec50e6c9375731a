// Loops over a row of scores or of a head, for attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/alignment.h"
#include "core/vectorized.h"
#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

// The loops over a row of scores run over whole vectors, because the last few elements take as long
// as several vectors: rows need room for their elements rounded up to kLanes.

// Sets the elements that complete the last vector to `value`. Returns the elements of all vectors.
TRIREME_INLINE inline int64_t complete_row(float* row, int64_t count, float value) {
  const int64_t whole = round_up(count, kLanes);
  for (int64_t j = count; j < whole; ++j) row[j] = value;
  return whole;
}

// p = softmax of the first `visible` scores, 0 beyond; returns their log-sum-exp. Overwrites s, and
// p may be s.
template <class T>
TRIREME_VECTORIZED float softmax_row(float* s, T* p, int64_t visible, int64_t keys, float scale) {
  float largest = -std::numeric_limits<float>::infinity();
  const int64_t whole = complete_row(s, visible, largest);
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < whole; ++j) largest = s[j] > largest ? s[j] : largest;
  largest *= scale;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < whole; ++j) sum += s[j] = fast_exp(s[j] * scale - largest);
  complete_row(s, visible, 0);
  const float factor = visible > 0 ? 1 / sum : 0;
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) p[j] = from_float<T>(s[j] * factor);
  for (int64_t j = whole; j < keys; ++j) p[j] = from_float<T>(0);
  return visible > 0 ? largest + std::log(sum) : 0;
}

// p as in softmax_row, from the log-sum-exp.
template <class T>
TRIREME_VECTORIZED void weights_row(float* s, T* p, int64_t visible, int64_t keys, float scale,
                                    float log_sum_exp) {
  const int64_t whole = complete_row(s, visible, 0);
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) p[j] = from_float<T>(fast_exp(s[j] * scale - log_sum_exp));
  for (int64_t j = visible; j < keys; ++j) p[j] = from_float<T>(0);
}

// ds = scale * p * (dp - delta), written over p, which is complete.
template <class T>
TRIREME_VECTORIZED void score_gradient_row(float* dp, T* p, int64_t keys, float scale,
                                           float delta) {
  const int64_t whole = complete_row(dp, keys, 0);
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) {
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
