// Normalization of contiguous rows, each with its own mean and variance. If not centered, 0 is used
// in place of the mean.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

// The mean and 1 / sqrt(var + epsilon) of a row.
struct RowStatistics {
  float mean, inv_std;
};
template <class T>
TRIREME_INLINE inline RowStatistics row_statistics(const T* x, int64_t length, float epsilon,
                                                   bool centered = true) {
  double sum = 0, squares = 0;
  if (centered) {
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < length; ++i) sum += to_float(x[i]);
  }
  const double mean = sum / static_cast<double>(length);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < length; ++i) {
    const double difference = to_float(x[i]) - mean;
    squares += difference * difference;
  }
  return {static_cast<float>(mean),
          static_cast<float>(1 / std::sqrt(squares / static_cast<double>(length) + epsilon))};
}

// Normalizes a row of x. `beta` and `saved` may be null.
template <class T>
TRIREME_VECTORIZED static void forward_row(const T* x, const float* gamma, const float* beta, T* y,
                                           int64_t features, float epsilon, float* saved,
                                           bool centered = true) {
  const RowStatistics row = row_statistics(x, features, epsilon, centered);
  const float mean = row.mean, inv_std = row.inv_std;
  if (beta) {
    for (int64_t i = 0; i < features; ++i) {
      y[i] = from_float<T>((to_float(x[i]) - mean) * inv_std * gamma[i] + beta[i]);
    }
  } else {
    for (int64_t i = 0; i < features; ++i) {
      y[i] = from_float<T>((to_float(x[i]) - mean) * inv_std * gamma[i]);
    }
  }
  if (saved) {
    saved[0] = mean;
    saved[1] = inv_std;
  }
}

template <class T>
TRIREME_VECTORIZED static void backward_row(const T* x, const T* dy, const float* gamma,
                                            const float* saved, T* dx, int64_t features,
                                            bool centered = true) {
  const float mean = saved[0], inv_std = saved[1];
  double sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
  for (int64_t i = 0; i < features; ++i) {
    const double g = static_cast<double>(to_float(dy[i])) * gamma[i];
    sum += g;
    products += g * ((to_float(x[i]) - mean) * inv_std);
  }
  const auto g_mean = centered ? static_cast<float>(sum / static_cast<double>(features)) : 0.0f;
  const auto projection = static_cast<float>(products / static_cast<double>(features));
  for (int64_t i = 0; i < features; ++i) {
    const float xhat = (to_float(x[i]) - mean) * inv_std;
    dx[i] = from_float<T>(inv_std * (to_float(dy[i]) * gamma[i] - g_mean - xhat * projection));
  }
}

// Computes dgamma and, unless it is null, dbeta of up to kColumns adjacent features. `saved_stride`
// is the distance between the saved statistics of consecutive rows.
constexpr int64_t kColumns = 128;

template <class T>
TRIREME_VECTORIZED static void parameter_gradients(const T* x, const T* dy, const float* saved,
                                                   int64_t saved_stride, int64_t rows,
                                                   int64_t features, int64_t columns, float* dgamma,
                                                   float* dbeta) {
  double scale[kColumns] = {}, shift[kColumns] = {};
  for (int64_t n = 0; n < rows; ++n) {
    const float mean = saved[n * saved_stride], inv_std = saved[n * saved_stride + 1];
    for (int64_t i = 0; i < columns; ++i) {
      const double g = to_float(dy[n * features + i]);
      shift[i] += g;
      scale[i] += g * ((to_float(x[n * features + i]) - mean) * inv_std);
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    dgamma[i] = static_cast<float>(scale[i]);
    if (dbeta) dbeta[i] = static_cast<float>(shift[i]);
  }
}

}  // namespace trireme::ops::cpu
