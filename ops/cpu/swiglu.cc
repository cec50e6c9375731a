#include "ops/swiglu.h"

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_VECTORIZED void swiglu_row(const T* x, T* y, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float gate = to_float(x[i]);
    y[i] = from_float<T>(gate / (1 + fast_exp(-gate)) * to_float(x[width + i]));
  }
}

// dx may be x.
template <class T>
TRIREME_VECTORIZED void swiglu_gradient_row(const T* x, const T* dy, T* dx, int64_t width) {
#pragma omp simd
  for (int64_t i = 0; i < width; ++i) {
    const float gate = to_float(x[i]), value = to_float(x[width + i]), g = to_float(dy[i]);
    const float sigmoid = 1 / (1 + fast_exp(-gate));
    dx[i] = from_float<T>(g * value * sigmoid * (1 + gate * (1 - sigmoid)));
    dx[width + i] = from_float<T>(g * gate * sigmoid);
  }
}

}  // namespace

Plan plan(const SwigluForward&, const EnginePtr&, Specs given) {
  using Op = SwigluForward;
  const int64_t rows = given[Op::kY].shape[0], width = given[Op::kY].shape[1];
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      auto* y = pointer<T>(args, Op::kY);
      parallel_for(rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) swiglu_row(x + r * 2 * width, y + r * width, width);
      });
    });
  });
}

Plan plan(const SwigluBackward&, const EnginePtr&, Specs given) {
  using Op = SwigluBackward;
  const int64_t rows = given[Op::kDy].shape[0], width = given[Op::kDy].shape[1];
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      const auto* dy = pointer<const T>(args, Op::kDy);
      auto* dx = pointer<T>(args, Op::kDx);
      parallel_for(rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          swiglu_gradient_row(x + r * 2 * width, dy + r * width, dx + r * 2 * width, width);
        }
      });
    });
  });
}

}  // namespace trireme::ops::cpu
