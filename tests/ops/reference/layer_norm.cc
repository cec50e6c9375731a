#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const LayerNormForward& op, Specs specs) {
  using O = LayerNormForward;
  const int64_t rows = specs[O::kX].shape[0], features = specs[O::kX].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t r = 0; r < rows; ++r) {
      const double* x = in(args, O::kX) + r * features;
      double mean = 0, variance = 0;
      for (int64_t f = 0; op.centered && f < features; ++f) {
        mean += x[f] / static_cast<double>(features);
      }
      for (int64_t f = 0; f < features; ++f) {
        variance += (x[f] - mean) * (x[f] - mean) / static_cast<double>(features);
      }
      const double inv_std = 1 / std::sqrt(variance + op.epsilon);
      for (int64_t f = 0; f < features; ++f) {
        out(args, O::kY)[r * features + f] = in(args, O::kGamma)[f] * (x[f] - mean) * inv_std +
                                             (in(args, O::kBeta) ? in(args, O::kBeta)[f] : 0);
      }
      if (!out(args, O::kSaved)) continue;
      out(args, O::kSaved)[2 * r] = mean;
      out(args, O::kSaved)[2 * r + 1] = inv_std;
    }
  });
}

Plan plan(const LayerNormBackward& op, Specs specs) {
  using O = LayerNormBackward;
  const int64_t rows = specs[O::kX].shape[0], features = specs[O::kX].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    std::fill_n(out(args, O::kDgamma), features, 0.0);
    if (out(args, O::kDbeta)) std::fill_n(out(args, O::kDbeta), features, 0.0);
    const auto n = static_cast<double>(features);
    for (int64_t r = 0; r < rows; ++r) {
      const double mean = in(args, O::kSaved)[2 * r], inv_std = in(args, O::kSaved)[2 * r + 1];
      const auto xhat = [&](int64_t f) {
        return (in(args, O::kX)[r * features + f] - mean) * inv_std;
      };
      double sum = 0, projection = 0;
      for (int64_t f = 0; f < features; ++f) {
        const double dy = in(args, O::kDy)[r * features + f];
        out(args, O::kDgamma)[f] += dy * xhat(f);
        if (out(args, O::kDbeta)) out(args, O::kDbeta)[f] += dy;
        if (op.centered) sum += dy * in(args, O::kGamma)[f];
        projection += dy * in(args, O::kGamma)[f] * xhat(f);
      }
      for (int64_t f = 0; f < features; ++f) {
        const double g = in(args, O::kDy)[r * features + f] * in(args, O::kGamma)[f];
        out(args, O::kDx)[r * features + f] = inv_std * (g - sum / n - xhat(f) * projection / n);
      }
    }
  });
}

}  // namespace trireme::ops::reference
