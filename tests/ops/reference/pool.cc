#include <algorithm>
#include <limits>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Calls visit(x index) for the elements of x in one window, in row-major order.
template <class Visit>
void each_in_window(const Shape& x, const PoolGeometry& g, int64_t plane, int64_t oh, int64_t ow,
                    Visit visit) {
  const int64_t top = oh * g.stride[0] - g.padding[0], left = ow * g.stride[1] - g.padding[1];
  for (int64_t h = std::max<int64_t>(0, top); h < std::min(x[2], top + g.kernel[0]); ++h)
    for (int64_t v = std::max<int64_t>(0, left); v < std::min(x[3], left + g.kernel[1]); ++v) {
      visit((plane * x[2] + h) * x[3] + v);
    }
}

template <class Visit>
void each_window(const Shape& y, Visit visit) {
  int64_t i = 0;
  for (int64_t plane = 0; plane < y[0] * y[1]; ++plane)
    for (int64_t oh = 0; oh < y[2]; ++oh)
      for (int64_t ow = 0; ow < y[3]; ++ow) visit(plane, oh, ow, i++);
}

double window_size(const Shape& x, const PoolGeometry& g, bool include_padding, int64_t oh,
                   int64_t ow) {
  if (include_padding) return static_cast<double>(g.kernel[0] * g.kernel[1]);
  double count = 0;
  each_in_window(x, g, 0, oh, ow, [&](int64_t) { ++count; });
  return count;
}

}  // namespace

// The workspace holds the index in x of each window's maximum.
Plan plan(const MaxPoolForward& op, Specs specs) {
  using O = MaxPoolForward;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  if (!is_absent(specs[O::kWorkspace])) {
    specs[O::kWorkspace] = {
        DType::kU8, {y.elements() * static_cast<int64_t>(sizeof(int64_t))}, Layout::row_major()};
  }
  return host_op(std::move(specs), [=](Args args, void*) {
    auto* winners = pointer<int64_t>(args, O::kWorkspace);
    each_window(y, [&](int64_t plane, int64_t oh, int64_t ow, int64_t i) {
      double best = -std::numeric_limits<double>::infinity();
      int64_t winner = -1;
      each_in_window(x, op.geometry, plane, oh, ow, [&](int64_t xi) {
        if (winner < 0 || in(args, O::kX)[xi] > best) {
          best = in(args, O::kX)[xi];
          winner = xi;
        }
      });
      out(args, O::kY)[i] = best;
      if (winners) winners[i] = winner;
    });
  });
}

Plan plan(const MaxPoolBackward&, Specs specs) {
  using O = MaxPoolBackward;
  const int64_t outputs = specs[O::kDy].shape.elements(), inputs = specs[O::kDx].shape.elements();
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* winners = pointer<const int64_t>(args, O::kWorkspace);
    std::fill_n(out(args, O::kDx), inputs, 0.0);
    for (int64_t i = 0; i < outputs; ++i) out(args, O::kDx)[winners[i]] += in(args, O::kDy)[i];
  });
}

Plan plan(const AveragePoolForward& op, Specs specs) {
  using O = AveragePoolForward;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    each_window(y, [&](int64_t plane, int64_t oh, int64_t ow, int64_t i) {
      double sum = 0;
      each_in_window(x, op.geometry, plane, oh, ow,
                     [&](int64_t xi) { sum += in(args, O::kX)[xi]; });
      out(args, O::kY)[i] = sum / window_size(x, op.geometry, op.include_padding, oh, ow);
    });
  });
}

Plan plan(const AveragePoolBackward& op, Specs specs) {
  using O = AveragePoolBackward;
  const Shape x = specs[O::kDx].shape, y = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    std::fill_n(out(args, O::kDx), x.elements(), 0.0);
    each_window(y, [&](int64_t plane, int64_t oh, int64_t ow, int64_t i) {
      const double share =
          in(args, O::kDy)[i] / window_size(x, op.geometry, op.include_padding, oh, ow);
      each_in_window(x, op.geometry, plane, oh, ow,
                     [&](int64_t xi) { out(args, O::kDx)[xi] += share; });
    });
  });
}

}  // namespace trireme::ops::reference
