#include "ops/class_token.h"

#include <cstring>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_VECTORIZED void add_position(const T* x, const T* position, T* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = from_float<T>(to_float(x[i]) + to_float(position[i]));
}

}  // namespace

Plan plan(const ClassTokenForward&, const EnginePtr&, Specs given) {
  using Op = ClassTokenForward;
  const Shape shape = given[Op::kY].shape;
  const int64_t length = shape[1], width = shape[2];
  return with_element(given[Op::kY].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      const auto* token = pointer<const T>(args, Op::kToken);
      const auto* positions = pointer<const T>(args, Op::kPositions);
      auto* y = pointer<T>(args, Op::kY);
      parallel_for(shape[0] * length, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t sample = r / length, t = r % length;
          const T* row = t == 0 ? token : x + (sample * (length - 1) + t - 1) * width;
          if (positions) {
            add_position(row, positions + t * width, y + r * width, width);
          } else {
            std::memcpy(y + r * width, row, static_cast<size_t>(width) * sizeof(T));
          }
        }
      });
    });
  });
}

// Threads divide the positions, so that every sum runs over the samples in order.
Plan plan(const ClassTokenBackward&, const EnginePtr&, Specs given) {
  using Op = ClassTokenBackward;
  const Shape shape = given[Op::kDy].shape;
  const int64_t samples = shape[0], length = shape[1], width = shape[2];
  return with_element(given[Op::kDy].dtype, [&]<class T>(T) -> Plan {
    return host_op(in_row_major(given), [=](Args args, void*) {
      const auto* dy = pointer<const T>(args, Op::kDy);
      auto* dx = pointer<T>(args, Op::kDx);
      auto* dtoken = pointer<float>(args, Op::kDtoken);
      auto* dpositions = pointer<float>(args, Op::kDpositions);
      const auto row = [&](int64_t sample, int64_t t) {
        return dy + (sample * length + t) * width;
      };
      const auto add_samples = [&](int64_t t, float* sum) {
        std::memset(sum, 0, static_cast<size_t>(width) * sizeof(float));
        for (int64_t sample = 0; sample < samples; ++sample) {
          accumulate_row(row(sample, t), sum, width);
        }
      };
      parallel_for(length, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          if (t == 0) add_samples(0, dtoken);
          if (dpositions) add_samples(t, dpositions + t * width);
          if (!dx || t == 0) continue;
          for (int64_t sample = 0; sample < samples; ++sample) {
            std::memcpy(dx + (sample * (length - 1) + t - 1) * width, row(sample, t),
                        static_cast<size_t>(width) * sizeof(T));
          }
        }
      });
    });
  });
}

}  // namespace trireme::ops::cpu
