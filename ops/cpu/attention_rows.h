// Loops over a row of scores or of a head, for attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/vectorized.h"
#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

// p = softmax of the first `visible` scores, 0 beyond; returns their log-sum-exp. Overwrites s, and
// p may be s.
template <class T>
TRIREME_VECTORIZED float softmax_row(float* s, T* p, int64_t visible, int64_t keys, float scale) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < visible; ++j) largest = s[j] > largest ? s[j] : largest;
  largest *= scale;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < visible; ++j) sum += s[j] = fast_exp(s[j] * scale - largest);
  const float factor = visible > 0 ? 1 / sum : 0;
#pragma omp simd
  for (int64_t j = 0; j < visible; ++j) p[j] = from_float<T>(s[j] * factor);
  for (int64_t j = visible; j < keys; ++j) p[j] = from_float<T>(0);
  return visible > 0 ? largest + std::log(sum) : 0;
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
