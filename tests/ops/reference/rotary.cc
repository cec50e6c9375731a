#include <cmath>

#include "ops/row_positions.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const Rotary& op, Specs specs) {
  using O = Rotary;
  const int64_t rows = specs[O::kX].shape[0], columns = specs[O::kX].shape[1];
  const int64_t part = part_rows(specs[O::kStarts], rows);
  return host_op(std::move(specs), [=](Args args, void*) {
    const RowPositions position{pointer<const int32_t>(args, O::kStarts), part, op.length};
    const int64_t half = op.head_dim / 2;
    for (int64_t r = 0; r < rows; ++r) {
      const double* x = in(args, O::kX) + r * columns;
      double* y = out(args, O::kY) + r * columns;
      for (int64_t i = op.heads * op.head_dim; i < columns; ++i) y[i] = x[i];
      for (int64_t h = 0; h < op.heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim);
          const double angle = static_cast<double>(position(r)) * std::pow(op.base, exponent) *
                               (op.inverse ? -1 : 1);
          const int64_t at = h * op.head_dim + i;
          const double a = x[at], b = x[at + half];
          y[at] = a * std::cos(angle) - b * std::sin(angle);
          y[at + half] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  });
}

}  // namespace trireme::ops::reference
