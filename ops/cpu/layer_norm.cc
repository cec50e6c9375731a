#include "ops/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/settle.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_VECTORIZED void forward_row(const T* x, const float* gamma, const float* beta, T* y,
                                    int64_t features, float epsilon, float* saved) {
  double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < features; ++i) sum += to_float(x[i]);
  const double mean = sum / static_cast<double>(features);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < features; ++i) {
    const double centred = to_float(x[i]) - mean;
    squares += centred * centred;
  }
  const auto centre = static_cast<float>(mean);
  const auto inv_std =
      static_cast<float>(1 / std::sqrt(squares / static_cast<double>(features) + epsilon));
  for (int64_t i = 0; i < features; ++i) {
    y[i] = from_float<T>((to_float(x[i]) - centre) * inv_std * gamma[i] + beta[i]);
  }
  if (saved) {
    saved[0] = centre;
    saved[1] = inv_std;
  }
}

template <class T>
TRIREME_VECTORIZED void backward_row(const T* x, const T* dy, const float* gamma,
                                     const float* saved, T* dx, int64_t features) {
  const float mean = saved[0], inv_std = saved[1];
  double sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
  for (int64_t i = 0; i < features; ++i) {
    const double g = static_cast<double>(to_float(dy[i])) * gamma[i];
    sum += g;
    products += g * ((to_float(x[i]) - mean) * inv_std);
  }
  const auto g_mean = static_cast<float>(sum / static_cast<double>(features));
  const auto projection = static_cast<float>(products / static_cast<double>(features));
  for (int64_t i = 0; i < features; ++i) {
    const float xhat = (to_float(x[i]) - mean) * inv_std;
    dx[i] = from_float<T>(inv_std * (to_float(dy[i]) * gamma[i] - g_mean - xhat * projection));
  }
}

// dgamma and dbeta of up to kColumns features.
constexpr int64_t kColumns = 128;

template <class T>
TRIREME_VECTORIZED void parameter_gradients(const T* x, const T* dy, const float* saved,
                                            int64_t rows, int64_t features, int64_t columns,
                                            float* dgamma, float* dbeta) {
  double scale[kColumns] = {}, shift[kColumns] = {};
  for (int64_t n = 0; n < rows; ++n) {
    const float mean = saved[2 * n], inv_std = saved[2 * n + 1];
    for (int64_t i = 0; i < columns; ++i) {
      const double g = to_float(dy[n * features + i]);
      shift[i] += g;
      scale[i] += g * ((to_float(x[n * features + i]) - mean) * inv_std);
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    dgamma[i] = static_cast<float>(scale[i]);
    dbeta[i] = static_cast<float>(shift[i]);
  }
}

template <class T>
void backward(int64_t rows, int64_t features, const T* x, const T* dy, const float* gamma,
              const float* saved, T* dx, float* dgamma, float* dbeta) {
  const int64_t pieces = (features + kColumns - 1) / kColumns;
  // First, for dx may be dy.
  parallel_for(pieces, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kColumns;
      parameter_gradients(x + first, dy + first, saved, rows, features,
                          std::min(kColumns, features - first), dgamma + first, dbeta + first);
    }
  });
  parallel_for(rows, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      backward_row(x + n * features, dy + n * features, gamma, saved + 2 * n, dx + n * features,
                   features);
    }
  });
}

}  // namespace

Plan plan(const LayerNormForward& op, const EnginePtr&, Specs given) {
  using Op = LayerNormForward;
  const Shape& shape = given[Op::kX].shape;
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given),
                   [rows = shape[0], features = shape[1], epsilon = op.epsilon](Args args, void*) {
                     const auto* x = pointer<const T>(args, Op::kX);
                     const auto* gamma = pointer<const float>(args, Op::kGamma);
                     const auto* beta = pointer<const float>(args, Op::kBeta);
                     auto* y = pointer<T>(args, Op::kY);
                     auto* saved = pointer<float>(args, Op::kSaved);
                     parallel_for(rows, [&](int64_t begin, int64_t end) {
                       for (int64_t n = begin; n < end; ++n) {
                         forward_row(x + n * features, gamma, beta, y + n * features, features,
                                     epsilon, saved ? saved + 2 * n : nullptr);
                       }
                     });
                   });
  });
}

Plan plan(const LayerNormBackward&, const EnginePtr&, Specs given) {
  using Op = LayerNormBackward;
  const Shape& shape = given[Op::kX].shape;
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [rows = shape[0], features = shape[1]](Args args, void*) {
      backward(rows, features, pointer<const T>(args, Op::kX), pointer<const T>(args, Op::kDy),
               pointer<const float>(args, Op::kGamma), pointer<const float>(args, Op::kSaved),
               pointer<T>(args, Op::kDx), pointer<float>(args, Op::kDgamma),
               pointer<float>(args, Op::kDbeta));
    });
  });
}

}  // namespace trireme::ops::cpu
