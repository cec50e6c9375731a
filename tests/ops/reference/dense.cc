#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const DenseForward& op, Specs specs) {
  using O = DenseForward;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t n = 0; n < y[0]; ++n)
      for (int64_t o = 0; o < y[1]; ++o) {
        double sum = in(args, O::kBias) ? in(args, O::kBias)[o] : 0;
        for (int64_t i = 0; i < x[1]; ++i) {
          sum += in(args, O::kX)[n * x[1] + i] * in(args, O::kWeight)[o * x[1] + i];
        }
        if (out(args, O::kZ)) out(args, O::kZ)[n * y[1] + o] = sum;
        out(args, O::kY)[n * y[1] + o] = activate(op.activation, sum);
      }
  });
}

Plan plan(const DenseBackwardData& op, Specs specs) {
  using O = DenseBackwardData;
  const Shape x = specs[O::kDx].shape, y = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t n = 0; n < x[0]; ++n)
      for (int64_t i = 0; i < x[1]; ++i) {
        double sum = 0;
        for (int64_t o = 0; o < y[1]; ++o) {
          sum += in(args, O::kDy)[n * y[1] + o] * in(args, O::kWeight)[o * x[1] + i];
        }
        const double saved = in(args, O::kSaved) ? in(args, O::kSaved)[n * x[1] + i] : 0;
        out(args, O::kDx)[n * x[1] + i] = sum * derivative(op.activation, saved, saved);
      }
  });
}

Plan plan(const DenseBackwardWeights& op, Specs specs) {
  using O = DenseBackwardWeights;
  const auto store = [accumulate = op.accumulate](double& to, double sum) {
    to = accumulate ? to + sum : sum;
  };
  const Shape x = specs[O::kX].shape, y = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t o = 0; o < y[1]; ++o) {
      double bias = 0;
      for (int64_t n = 0; n < y[0]; ++n) bias += in(args, O::kDy)[n * y[1] + o];
      if (out(args, O::kDbias)) store(out(args, O::kDbias)[o], bias);
      for (int64_t i = 0; i < x[1]; ++i) {
        double sum = 0;
        for (int64_t n = 0; n < x[0]; ++n) {
          sum += in(args, O::kDy)[n * y[1] + o] * in(args, O::kX)[n * x[1] + i];
        }
        store(out(args, O::kDweight)[o * x[1] + i], sum);
      }
    }
  });
}

}  // namespace trireme::ops::reference
