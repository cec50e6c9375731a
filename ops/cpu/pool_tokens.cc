#include "ops/pool_tokens.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_VECTORIZED void mean_row(const float* sum, float factor, T* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = from_float<T>(sum[i] * factor);
}

template <class T>
TRIREME_VECTORIZED void scaled_row(const T* dy, float factor, T* dx, int64_t width) {
  for (int64_t i = 0; i < width; ++i) dx[i] = from_float<T>(to_float(dy[i]) * factor);
}

float share_of(int64_t count) { return count > 0 ? 1 / static_cast<float>(count) : 0; }

}  // namespace

Plan plan(const PoolTokensForward& op, const EnginePtr&, Specs given) {
  using Op = PoolTokensForward;
  const Shape shape = given[Op::kX].shape;
  const int64_t length = shape[1], width = shape[2];
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      const auto* lengths = pointer<const int32_t>(args, Op::kLengths);
      auto* y = pointer<T>(args, Op::kY);
      parallel_for(shape[0], [&](int64_t begin, int64_t end) {
        std::vector<float> sum(static_cast<size_t>(width));
        for (int64_t sample = begin; sample < end; ++sample) {
          const int64_t last = op.range.end(lengths ? lengths[sample] : length);
          std::ranges::fill(sum, 0);
          for (int64_t t = op.range.first; t < last; ++t) {
            accumulate_row(x + (sample * length + t) * width, sum.data(), width);
          }
          mean_row(sum.data(), share_of(last - op.range.first), y + sample * width, width);
        }
      });
    });
  });
}

Plan plan(const PoolTokensBackward& op, const EnginePtr&, Specs given) {
  using Op = PoolTokensBackward;
  const Shape shape = given[Op::kDx].shape;
  const int64_t length = shape[1], width = shape[2];
  return with_element(given[Op::kDx].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* dy = pointer<const T>(args, Op::kDy);
      const auto* lengths = pointer<const int32_t>(args, Op::kLengths);
      auto* dx = pointer<T>(args, Op::kDx);
      parallel_for(shape[0], [&](int64_t begin, int64_t end) {
        for (int64_t sample = begin; sample < end; ++sample) {
          const int64_t last = op.range.end(lengths ? lengths[sample] : length);
          const float share = share_of(last - op.range.first);
          for (int64_t t = 0; t < length; ++t) {
            T* row = dx + (sample * length + t) * width;
            if (t >= op.range.first && t < last) {
              scaled_row(dy + sample * width, share, row, width);
            } else {
              std::memset(row, 0, static_cast<size_t>(width) * sizeof(T));
            }
          }
        }
      });
    });
  });
}

}  // namespace trireme::ops::cpu
