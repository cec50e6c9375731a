#include <algorithm>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Calls visit(x index, weight index, y index) for every product in the convolution.
template <class Visit>
void each_product(const Shape& x, const Shape& w, const Shape& y, const Conv2dGeometry& g,
                  Visit visit) {
  const int64_t group_out = w[0] / g.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t o = 0; o < y[1]; ++o)
      for (int64_t oh = 0; oh < y[2]; ++oh)
        for (int64_t ow = 0; ow < y[3]; ++ow)
          for (int64_t i = 0; i < w[1]; ++i)
            for (int64_t kh = 0; kh < w[2]; ++kh)
              for (int64_t kw = 0; kw < w[3]; ++kw) {
                const int64_t h = oh * g.stride[0] - g.padding[0] + kh * g.dilation[0];
                const int64_t v = ow * g.stride[1] - g.padding[1] + kw * g.dilation[1];
                if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
                const int64_t c = o / group_out * w[1] + i;
                visit(((n * x[1] + c) * x[2] + h) * x[3] + v,
                      ((o * w[1] + i) * w[2] + kh) * w[3] + kw,
                      ((n * y[1] + o) * y[2] + oh) * y[3] + ow);
              }
}

}  // namespace

Plan plan(const Conv2dForward& op, Specs specs) {
  using O = Conv2dForward;
  const Shape x = specs[O::kX].shape, w = specs[O::kWeight].shape, y = specs[O::kY].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    const double* bias = in(args, O::kBias);
    double* result = out(args, O::kY);
    const int64_t area = y[2] * y[3];
    for (int64_t i = 0; i < y.elements(); ++i) result[i] = bias ? bias[i / area % y[1]] : 0;
    each_product(x, w, y, op.geometry, [&](int64_t xi, int64_t wi, int64_t yi) {
      result[yi] += in(args, O::kX)[xi] * in(args, O::kWeight)[wi];
    });
    for (int64_t i = 0; i < y.elements(); ++i) result[i] = activate(op.activation, result[i]);
  });
}

Plan plan(const Conv2dBackwardData& op, Specs specs) {
  using O = Conv2dBackwardData;
  const Shape x = specs[O::kDx].shape, w = specs[O::kWeight].shape, y = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    double* dx = out(args, O::kDx);
    std::fill_n(dx, x.elements(), 0.0);
    each_product(x, w, y, op.geometry, [&](int64_t xi, int64_t wi, int64_t yi) {
      dx[xi] += in(args, O::kDy)[yi] * in(args, O::kWeight)[wi];
    });
  });
}

Plan plan(const Conv2dBackwardWeights& op, Specs specs) {
  using O = Conv2dBackwardWeights;
  const Shape x = specs[O::kX].shape, w = specs[O::kDweight].shape, y = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    double* dw = out(args, O::kDweight);
    std::fill_n(dw, w.elements(), 0.0);
    each_product(x, w, y, op.geometry, [&](int64_t xi, int64_t wi, int64_t yi) {
      dw[wi] += in(args, O::kDy)[yi] * in(args, O::kX)[xi];
    });
    double* db = out(args, O::kDbias);
    if (!db) return;
    std::fill_n(db, y[1], 0.0);
    for (int64_t i = 0; i < y.elements(); ++i) {
      db[i / (y[2] * y[3]) % y[1]] += in(args, O::kDy)[i];
    }
  });
}

}  // namespace trireme::ops::reference
