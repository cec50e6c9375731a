#include <algorithm>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const ClassTokenForward&, Specs specs) {
  using O = ClassTokenForward;
  const Shape shape = specs[O::kY].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t c = i % shape[2], t = i / shape[2] % shape[1], b = i / shape[2] / shape[1];
      const double x = t == 0 ? in(args, O::kToken)[c]
                              : in(args, O::kX)[(b * (shape[1] - 1) + t - 1) * shape[2] + c];
      out(args, O::kY)[i] =
          x + (in(args, O::kPositions) ? in(args, O::kPositions)[t * shape[2] + c] : 0);
    }
  });
}

Plan plan(const ClassTokenBackward&, Specs specs) {
  using O = ClassTokenBackward;
  const Shape shape = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    std::fill_n(out(args, O::kDtoken), shape[2], 0.0);
    double* dpositions = out(args, O::kDpositions);
    if (dpositions) std::fill_n(dpositions, shape[1] * shape[2], 0.0);
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t c = i % shape[2], t = i / shape[2] % shape[1], b = i / shape[2] / shape[1];
      const double dy = in(args, O::kDy)[i];
      if (t == 0) out(args, O::kDtoken)[c] += dy;
      if (dpositions) dpositions[t * shape[2] + c] += dy;
      if (t > 0 && out(args, O::kDx)) {
        out(args, O::kDx)[(b * (shape[1] - 1) + t - 1) * shape[2] + c] = dy;
      }
    }
  });
}

}  // namespace trireme::ops::reference
