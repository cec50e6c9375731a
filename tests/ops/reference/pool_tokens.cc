#include <algorithm>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Calls f(i, c, count) for the features, i of x and i of the pooled ones, of the tokens that are
// read, with their number in the sequence.
template <class F>
void each_read(const TokenRange& range, const Shape& x, const int32_t* lengths, F f) {
  for (int64_t b = 0; b < x[0]; ++b) {
    const int64_t length = lengths ? lengths[b] : x[1];
    const int64_t all = range.count == 0 ? length : range.first + range.count;
    const int64_t end = std::min(all, length);
    for (int64_t t = range.first; t < end; ++t) {
      for (int64_t c = 0; c < x[2]; ++c) {
        f((b * x[1] + t) * x[2] + c, b * x[2] + c, static_cast<double>(end - range.first));
      }
    }
  }
}

}  // namespace

Plan plan(const PoolTokensForward& op, Specs specs) {
  using O = PoolTokensForward;
  const Shape shape = specs[O::kX].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    std::fill_n(out(args, O::kY), shape[0] * shape[2], 0.0);
    each_read(op.range, shape, pointer<const int32_t>(args, O::kLengths),
              [&](int64_t from, int64_t to, double count) {
                out(args, O::kY)[to] += in(args, O::kX)[from] / count;
              });
  });
}

Plan plan(const PoolTokensBackward& op, Specs specs) {
  using O = PoolTokensBackward;
  const Shape shape = specs[O::kDx].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    std::fill_n(out(args, O::kDx), shape.elements(), 0.0);
    each_read(op.range, shape, pointer<const int32_t>(args, O::kLengths),
              [&](int64_t to, int64_t from, double count) {
                out(args, O::kDx)[to] = in(args, O::kDy)[from] / count;
              });
  });
}

}  // namespace trireme::ops::reference
