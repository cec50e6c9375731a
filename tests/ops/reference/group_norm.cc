#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// A group is a contiguous row with `per_channel` values for each of its channels.
struct GroupRows {
  GroupRows(const Shape& x, int64_t groups_of_sample)
      : groups(groups_of_sample),
        rows(x[0] * groups),
        length(x.elements() / rows),
        per_channel(x.elements() / (x[0] * x[1])) {}

  int64_t channel(int64_t row, int64_t i) const {
    return (row % groups * length + i) / per_channel;
  }

  int64_t groups, rows, length, per_channel;
};

double value_or(const double* values, int64_t i, double absent) {
  return values ? values[i] : absent;
}

}  // namespace

Plan plan(const GroupNormForward& op, Specs specs) {
  using O = GroupNormForward;
  const GroupRows all(specs[O::kX].shape, op.groups);
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto n = static_cast<double>(all.length);
    for (int64_t r = 0; r < all.rows; ++r) {
      const double* x = in(args, O::kX) + r * all.length;
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < all.length; ++i) mean += x[i] / n;
      for (int64_t i = 0; i < all.length; ++i) variance += (x[i] - mean) * (x[i] - mean) / n;
      const double inv_std = 1 / std::sqrt(variance + op.epsilon);
      for (int64_t i = 0; i < all.length; ++i) {
        const int64_t c = all.channel(r, i);
        out(args, O::kY)[r * all.length + i] =
            value_or(in(args, O::kGamma), c, 1) * (x[i] - mean) * inv_std +
            value_or(in(args, O::kBeta), c, 0);
      }
      if (!out(args, O::kSaved)) continue;
      out(args, O::kSaved)[2 * r] = mean;
      out(args, O::kSaved)[2 * r + 1] = inv_std;
    }
  });
}

Plan plan(const GroupNormBackward& op, Specs specs) {
  using O = GroupNormBackward;
  const GroupRows all(specs[O::kX].shape, op.groups);
  const int64_t channels = specs[O::kX].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto n = static_cast<double>(all.length);
    const int64_t valid = all.groups * state(args, O::kState).valid_rows;
    double* const dgamma = out(args, O::kDgamma);
    double* const dbeta = out(args, O::kDbeta);
    if (dgamma) std::fill_n(dgamma, channels, 0.0);
    if (dbeta) std::fill_n(dbeta, channels, 0.0);
    for (int64_t r = 0; r < all.rows; ++r) {
      double* const dx = out(args, O::kDx) + r * all.length;
      if (r >= valid) {
        std::fill_n(dx, all.length, 0.0);
        continue;
      }
      const double mean = in(args, O::kSaved)[2 * r], inv_std = in(args, O::kSaved)[2 * r + 1];
      const double* const x = in(args, O::kX) + r * all.length;
      const double* const dy = in(args, O::kDy) + r * all.length;
      const auto xhat = [&](int64_t i) { return (x[i] - mean) * inv_std; };
      const auto g = [&](int64_t i) {
        return dy[i] * value_or(in(args, O::kGamma), all.channel(r, i), 1);
      };
      double sum = 0, projection = 0;
      for (int64_t i = 0; i < all.length; ++i) {
        if (dgamma) dgamma[all.channel(r, i)] += dy[i] * xhat(i);
        if (dbeta) dbeta[all.channel(r, i)] += dy[i];
        sum += g(i);
        projection += g(i) * xhat(i);
      }
      for (int64_t i = 0; i < all.length; ++i) {
        dx[i] = inv_std * (g(i) - sum / n - xhat(i) * projection / n);
      }
    }
  });
}

}  // namespace trireme::ops::reference
