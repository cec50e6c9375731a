#include "ops/layer_norm.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/row_passes.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
void backward(int64_t rows, int64_t features, const T* x, const T* dy, const float* gamma,
              const float* saved, T* dx, float* dgamma, float* dbeta, bool centered) {
  const int64_t pieces = (features + kColumns - 1) / kColumns;
  // These come first, because dx may be dy.
  parallel_for(pieces, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kColumns;
      parameter_gradients(x + first, dy + first, saved, 2, rows, features,
                          std::min(kColumns, features - first), dgamma + first,
                          dbeta ? dbeta + first : nullptr);
    }
  });
  parallel_for(rows, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      backward_row(x + n * features, dy + n * features, gamma, saved + 2 * n, dx + n * features,
                   features, centered);
    }
  });
}

}  // namespace

Plan plan(const LayerNormForward& op, const EnginePtr&, Specs given) {
  using Op = LayerNormForward;
  const Shape& shape = given[Op::kX].shape;
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given),
                   [rows = shape[0], features = shape[1], op](Args args, void*) {
                     const auto* x = pointer<const T>(args, Op::kX);
                     const auto* gamma = pointer<const float>(args, Op::kGamma);
                     const auto* beta = pointer<const float>(args, Op::kBeta);
                     auto* y = pointer<T>(args, Op::kY);
                     auto* saved = pointer<float>(args, Op::kSaved);
                     parallel_for(rows, [&](int64_t begin, int64_t end) {
                       for (int64_t n = begin; n < end; ++n) {
                         forward_row(x + n * features, gamma, beta, y + n * features, features,
                                     op.epsilon, saved ? saved + 2 * n : nullptr, op.centered);
                       }
                     });
                   });
  });
}

Plan plan(const LayerNormBackward& op, const EnginePtr&, Specs given) {
  using Op = LayerNormBackward;
  const Shape& shape = given[Op::kX].shape;
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [rows = shape[0], features = shape[1],
                                         centered = op.centered](Args args, void*) {
      backward(rows, features, pointer<const T>(args, Op::kX), pointer<const T>(args, Op::kDy),
               pointer<const float>(args, Op::kGamma), pointer<const float>(args, Op::kSaved),
               pointer<T>(args, Op::kDx), pointer<float>(args, Op::kDgamma),
               pointer<float>(args, Op::kDbeta), centered);
    });
  });
}

}  // namespace trireme::ops::cpu
