#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Whether the gradients' sum of squares tells that there is nothing to learn from them.
bool skips(const double* squares, const LossScale* loss_scale) {
  return loss_scale && !std::isfinite(*squares);
}

// What gradients are multiplied by.
double gradient_factor(const Update& op, const double* squares, const LossScale* loss_scale) {
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

template <class Rule, int... I>
void update(const Update& op, const Rule& rule, Args args, std::integer_sequence<int, I...>) {
  using O = Update;
  const LossScale* scale = loss_scale(args, O::kLossScale);
  if (skips(in(args, O::kSquares), scale)) return;
  const double factor = gradient_factor(op, in(args, O::kSquares), scale);
  const StepState& state = reference::state(args, O::kState);
  const auto step =
      rule.at_step(static_cast<double>(state.step + 1 - (scale ? scale->skipped : 0)));
  each(op.ranges, [&](const UpdateRange& range, int64_t i) {
    const RangeNumbers<double> numbers{
        double{state.learning_rate} * double{range.learning_rate_scale}, range.weight_decay};
    double& p = out(args, O::kParameters)[i];
    Rule::apply(rule.numbers(step, numbers), in(args, O::kGradients)[i] * factor, p,
                out(args, O::kSlots + I)[i]...);
    copy_low(args, O::kLowPrecision, i, p);
  });
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

Plan plan(const Update& op, Specs specs) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) {
        return host_op(std::move(specs), [op, rule](Args args, void*) {
          update(op, rule, args, SlotNumbers<Rule>());
        });
      },
      op.rule);
}

}  // namespace trireme::ops::reference
