#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// x as rows of channels of positions.
struct Extents {
  explicit Extents(const Shape& x)
      : rows(x[0]), channels(x[1]), positions(x.elements() / std::max<int64_t>(1, x[0] * x[1])) {}
  int64_t at(int64_t row, int64_t channel, int64_t place) const {
    return (row * channels + channel) * positions + place;
  }
  int64_t rows, channels, positions;
};

template <class Visit>
void each(const Extents& e, int64_t rows, int64_t channel, Visit visit) {
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t s = 0; s < e.positions; ++s) visit(e.at(n, channel, s));
}

// Two sums over the valid values of a channel, and the number of values.
struct Sums {
  double first = 0, second = 0, count = 0;
};

Sums moments(const Extents& e, int64_t valid, int64_t channel, const double* x) {
  Sums sums{0, 0, static_cast<double>(valid * e.positions)};
  each(e, valid, channel, [&](int64_t i) {
    sums.first += x[i];
    sums.second += x[i] * x[i];
  });
  return sums;
}

Sums given(const double* sums, int64_t channels, int64_t channel) {
  return {sums[channel], sums[channels + channel], sums[2 * channels]};
}

void store(double* sums, int64_t channels, int64_t channel, const Sums& from) {
  sums[channel] = from.first;
  sums[channels + channel] = from.second;
  sums[2 * channels] = from.count;
}

// The sums of g and of g * xhat; g is dy where the ReLU was active, otherwise 0.
Sums gradient_sums(const Extents& e, int64_t valid, int64_t channel, const double* x,
                   const double* y, const double* dy, const double* saved) {
  Sums sums{0, 0, static_cast<double>(valid * e.positions)};
  each(e, valid, channel, [&](int64_t i) {
    const double g = !y || y[i] > 0 ? dy[i] : 0;
    sums.first += g;
    sums.second += g * (x[i] - saved[channel]) * saved[e.channels + channel];
  });
  return sums;
}

double relu_if(bool relu, double value) { return relu && !(value > 0) ? 0 : value; }

}  // namespace

Plan plan(const BatchNormStatistics&, Specs specs) {
  using O = BatchNormStatistics;
  const Extents e(specs[O::kX].shape);
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t c = 0; c < e.channels; ++c) {
      store(out(args, O::kSums), e.channels, c,
            moments(e, state(args, O::kState).valid_rows, c, in(args, O::kX)));
    }
  });
}

Plan plan(const BatchNormForward& op, Specs specs) {
  using O = BatchNormForward;
  const Extents e(specs[O::kX].shape);
  return host_op(std::move(specs), [=](Args args, void*) {
    const int64_t valid = state(args, O::kState).valid_rows;
    const double* residual = in(args, O::kResidual);
    for (int64_t c = 0; c < e.channels; ++c) {
      const double* sums = in(args, O::kSums);
      const Sums s = sums ? given(sums, e.channels, c) : moments(e, valid, c, in(args, O::kX));
      const double mean = s.count > 0 ? s.first / s.count : 0;
      const double variance = s.count > 0 ? std::max(0.0, s.second / s.count - mean * mean) : 0;
      const double inv_std = 1 / std::sqrt(variance + op.epsilon);
      out(args, O::kSaved)[c] = mean;
      out(args, O::kSaved)[e.channels + c] = inv_std;
      each(e, e.rows, c, [&](int64_t i) {
        const double value = in(args, O::kGamma)[c] * (in(args, O::kX)[i] - mean) * inv_std +
                             in(args, O::kBeta)[c] + (residual ? residual[i] : 0);
        out(args, O::kY)[i] = relu_if(op.relu, value);
      });
      if (s.count == 0 || !out(args, O::kRunningMean)) continue;
      const double unbiased = s.count > 1 ? variance * s.count / (s.count - 1) : variance;
      const double m = op.momentum;
      double& running_mean = out(args, O::kRunningMean)[c];
      double& running_var = out(args, O::kRunningVar)[c];
      running_mean = (1 - m) * running_mean + m * mean;
      running_var = (1 - m) * running_var + m * unbiased;
    }
  });
}

Plan plan(const BatchNormInference& op, Specs specs) {
  using O = BatchNormInference;
  const Extents e(specs[O::kX].shape);
  return host_op(std::move(specs), [=](Args args, void*) {
    const double* residual = in(args, O::kResidual);
    const double* means = in(args, O::kRunningMean);
    const double* beta = in(args, O::kBeta);
    for (int64_t c = 0; c < e.channels; ++c) {
      const double inv_std = 1 / std::sqrt(in(args, O::kRunningVar)[c] + op.epsilon);
      const double mean = means ? means[c] : 0;
      each(e, e.rows, c, [&](int64_t i) {
        const double value = in(args, O::kGamma)[c] * (in(args, O::kX)[i] - mean) * inv_std +
                             (beta ? beta[c] : 0) + (residual ? residual[i] : 0);
        out(args, O::kY)[i] = relu_if(op.relu, value);
      });
    }
  });
}

Plan plan(const BatchNormBackwardSums& op, Specs specs) {
  using O = BatchNormBackwardSums;
  const Extents e(specs[O::kX].shape);
  return host_op(std::move(specs), [=](Args args, void*) {
    const double* y = op.relu ? in(args, O::kY) : nullptr;
    for (int64_t c = 0; c < e.channels; ++c) {
      store(out(args, O::kSums), e.channels, c,
            gradient_sums(e, state(args, O::kState).valid_rows, c, in(args, O::kX), y,
                          in(args, O::kDy), in(args, O::kSaved)));
    }
  });
}

Plan plan(const BatchNormBackward& op, Specs specs) {
  using O = BatchNormBackward;
  const Extents e(specs[O::kX].shape);
  return host_op(std::move(specs), [=](Args args, void*) {
    const int64_t valid = state(args, O::kState).valid_rows;
    const double* x = in(args, O::kX);
    const double* y = op.relu ? in(args, O::kY) : nullptr;
    const double* saved = in(args, O::kSaved);
    double* dresidual = out(args, O::kDresidual);
    for (int64_t c = 0; c < e.channels; ++c) {
      const Sums own = gradient_sums(e, valid, c, x, y, in(args, O::kDy), saved);
      const Sums s = in(args, O::kSums) ? given(in(args, O::kSums), e.channels, c) : own;
      out(args, O::kDbeta)[c] = own.first;
      out(args, O::kDgamma)[c] = own.second;
      const double inv_std = saved[e.channels + c];
      for (int64_t n = 0; n < e.rows; ++n)
        for (int64_t p = 0; p < e.positions; ++p) {
          const int64_t i = e.at(n, c, p);
          const double g = n < valid && (!y || y[i] > 0) ? in(args, O::kDy)[i] : 0;
          const double xhat = (x[i] - saved[c]) * inv_std;
          const double dx = in(args, O::kGamma)[c] * inv_std *
                            (g - s.first / s.count - xhat * s.second / s.count);
          if (dresidual) dresidual[i] = g;
          out(args, O::kDx)[i] = n < valid ? dx : 0;
        }
    }
  });
}

}  // namespace trireme::ops::reference
