#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::reference {
namespace {

// Whether the gradients' sum of squares tells that there is nothing to learn from them.
bool skips(const double* squares, const LossScale* loss_scale) {
  return loss_scale && !std::isfinite(*squares);
}

// What gradients are multiplied by.
double gradient_factor(const UpdateCommon& op, const double* squares, const LossScale* loss_scale) {
  const double unscaled = loss_scale ? 1 / double{loss_scale->scale} : 1;
  if (op.max_norm <= 0 || *squares <= 0) return unscaled;
  return unscaled * std::min(1.0, double{op.max_norm} / (std::sqrt(*squares) * unscaled));
}

template <class Visit>
void each(const std::vector<UpdateRange>& ranges, Visit visit) {
  for (const UpdateRange& range : ranges)
    for (int64_t i = range.begin; i < range.end; ++i) visit(range, i);
}

// The copy in lower precision, where there is one, is f32 here.
void copy_low(Args args, int low, int64_t i, double value) {
  if (args[static_cast<size_t>(low)]) {
    pointer<float>(args, low)[i] = static_cast<float>(value);
  }
}

}  // namespace

Plan plan(const SumOfSquares& op, Specs specs) {
  return host_op(std::move(specs), [=](Args args, void*) {
    double sum = 0;
    each(op.ranges, [&](const UpdateRange&, int64_t i) {
      sum += in(args, SumOfSquares::kX)[i] * in(args, SumOfSquares::kX)[i];
    });
    each(op.watched,
         [&](const UpdateRange&, int64_t i) { sum += 0 * in(args, SumOfSquares::kX)[i]; });
    *out(args, SumOfSquares::kSum) = sum;
  });
}

Plan plan(const SgdUpdate& op, Specs specs) {
  using O = SgdUpdate;
  return host_op(std::move(specs), [=](Args args, void*) {
    const LossScale* scale = loss_scale(args, O::kLossScale);
    if (skips(in(args, O::kSquares), scale)) return;
    const double factor = gradient_factor(op, in(args, O::kSquares), scale);
    const double rate = state(args, O::kState).learning_rate;
    each(op.ranges, [&](const UpdateRange& range, int64_t i) {
      double& p = out(args, O::kParameters)[i];
      double g = in(args, O::kGradients)[i] * factor + double{range.weight_decay} * p;
      if (op.momentum != 0) {
        double& v = out(args, O::kVelocity)[i];
        v = double{op.momentum} * v + g;
        g = op.nesterov ? g + double{op.momentum} * v : v;
      }
      p -= rate * double{range.learning_rate_scale} * g;
      copy_low(args, O::kLowPrecision, i, p);
    });
  });
}

Plan plan(const AdamUpdate& op, Specs specs) {
  using O = AdamUpdate;
  return host_op(std::move(specs), [=](Args args, void*) {
    const LossScale* scale = loss_scale(args, O::kLossScale);
    if (skips(in(args, O::kSquares), scale)) return;
    const double factor = gradient_factor(op, in(args, O::kSquares), scale);
    const StepState& step = state(args, O::kState);
    const int64_t skipped = scale ? scale->skipped : 0;
    const auto t = static_cast<double>(step.step + 1 - skipped);
    const double correction1 = 1 - std::pow(double{op.beta1}, t);
    const double correction2 = 1 - std::pow(double{op.beta2}, t);
    each(op.ranges, [&](const UpdateRange& range, int64_t i) {
      const double rate = double{step.learning_rate} * double{range.learning_rate_scale};
      double& p = out(args, O::kParameters)[i];
      double g = in(args, O::kGradients)[i] * factor;
      if (op.decoupled) {
        p -= rate * double{range.weight_decay} * p;
      } else {
        g += double{range.weight_decay} * p;
      }
      double& m = out(args, O::kMoment1)[i];
      double& v = out(args, O::kMoment2)[i];
      m = double{op.beta1} * m + (1 - double{op.beta1}) * g;
      v = double{op.beta2} * v + (1 - double{op.beta2}) * g * g;
      p -= rate * (m / correction1) / (std::sqrt(v / correction2) + double{op.epsilon});
      copy_low(args, O::kLowPrecision, i, p);
    });
  });
}

}  // namespace trireme::reference
