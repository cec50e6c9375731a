#include "ops/rotary.h"

#include <cstring>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/row_positions.h"

namespace trireme::ops::cpu {
namespace {

// A head; y may be x.
template <class T>
TRIREME_VECTORIZED void rotate(const T* x, const float* table, T* y, int64_t half) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(x[i]), b = to_float(x[i + half]);
    const float cosine = table[2 * i], sine = table[2 * i + 1];
    y[i] = from_float<T>(a * cosine - b * sine);
    y[i + half] = from_float<T>(b * cosine + a * sine);
  }
}

}  // namespace

Plan plan(const Rotary& op, const EnginePtr&, Specs given) {
  using Op = Rotary;
  const int64_t rows = given[Op::kX].shape[0], columns = given[Op::kX].shape[1];
  return with_element(given[Op::kX].dtype, [&]<class T>(T) -> Plan {
    const int64_t part = part_rows(given[Op::kStarts], rows);
    const auto work = [=, table = rotary_table(op)](Args args, void*) {
      const RowPositions position{pointer<const int32_t>(args, Op::kStarts), part, op.length};
      const auto* x = pointer<const T>(args, Op::kX);
      auto* y = pointer<T>(args, Op::kY);
      const int64_t rotated = op.heads * op.head_dim;
      parallel_for(rows, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const float* angles = table.data() + position(r) * op.head_dim;
          for (int64_t at = r * columns; at < r * columns + rotated; at += op.head_dim) {
            rotate(x + at, angles, y + at, op.head_dim / 2);
          }
          if (x == y) continue;
          std::memcpy(y + r * columns + rotated, x + r * columns + rotated,
                      static_cast<size_t>(columns - rotated) * sizeof(T));
        }
      });
    };
    return host_op(in_row_major(given), work);
  });
}

}  // namespace trireme::ops::cpu
