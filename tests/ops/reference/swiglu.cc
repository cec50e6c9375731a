#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const SwigluForward&, Specs specs) {
  using O = SwigluForward;
  const int64_t rows = specs[O::kY].shape[0], width = specs[O::kY].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t r = 0; r < rows; ++r) {
      const double* gate = in(args, O::kX) + r * 2 * width;
      for (int64_t i = 0; i < width; ++i) {
        out(args, O::kY)[r * width + i] = activate(Activation::kSilu, gate[i]) * gate[width + i];
      }
    }
  });
}

Plan plan(const SwigluBackward&, Specs specs) {
  using O = SwigluBackward;
  const int64_t rows = specs[O::kDy].shape[0], width = specs[O::kDy].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        const double gate = in(args, O::kX)[r * 2 * width + i];
        const double value = in(args, O::kX)[r * 2 * width + width + i];
        const double dy = in(args, O::kDy)[r * width + i];
        const double y = activate(Activation::kSilu, gate);
        out(args, O::kDx)[r * 2 * width + i] = dy * value * derivative(Activation::kSilu, gate, y);
        out(args, O::kDx)[r * 2 * width + width + i] = dy * y;
      }
    }
  });
}

}  // namespace trireme::ops::reference
