#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Returns the factor of gradients.
double gradient_factor(double max_norm, const double* squares, const LossScale* loss_scale,
                       double correction) {
  const double unscaled = loss_scale ? correction / double{loss_scale->scale} : correction;
  if (max_norm <= 0 || *squares <= 0 || unscaled == 0) return unscaled;
  return unscaled * std::min(1.0, max_norm / (std::sqrt(*squares) * unscaled));
}

template <class Visit>
void each(const std::vector<UpdateRange>& ranges, Visit visit) {
  for (const UpdateRange& range : ranges)
    for (int64_t i = range.begin; i < range.end; ++i) visit(range, i);
}

// The optional low-precision copy is f32 in the reference.
void copy_low(Args args, int low, int64_t i, double value) {
  if (args[static_cast<size_t>(low)]) {
    pointer<float>(args, low)[i] = static_cast<float>(value);
  }
}

// Calls work(step number, gradient factor, numbers of a range) unless it is skipped. Returns
// whether it is skipped because the squares of a rule with second moments overflow.
template <class Rule, class Op, class Work>
bool in_step(const Op& op, Args args, Work work) {
  const LossScale* scale = loss_scale(args, Op::kLossScale);
  const double* squares = in(args, Op::kSquares);
  if (scale && !std::isfinite(*squares)) return false;
  const StepState& state = reference::state(args, Op::kState);
  const double* metrics = in(args, Op::kMetrics);
  const double factor = gradient_factor(
      op.max_norm, squares, scale, metrics ? label_correction(state, metrics[kMetricWeight]) : 1);
  constexpr bool kHasSquares = std::is_same_v<Rule, Adam> || std::is_same_v<Rule, Lamb>;
  if (kHasSquares && scale && std::sqrt(*squares) * factor > 1.8446743e19) return true;
  work(static_cast<double>(state.step + 1 - (scale ? scale->skipped : 0)), factor,
       [&](const UpdateRange& range, double trust_ratio) {
         return RangeNumbers<double>{
             double{state.learning_rate} * double{range.learning_rate_scale}, range.weight_decay,
             trust_ratio};
       });
  return false;
}

template <class Rule, class... Slot>
double direction(const typename Rule::template Numbers<double>& n, double g, double p,
                 Slot... slots) {
  return Rule::direction(n, g, p, slots...);
}

template <class Rule, int... I>
void tensor_squares(const TensorSquares& op, const Rule& rule, Args args,
                    std::integer_sequence<int, I...>) {
  using O = TensorSquares;
  double* sums = out(args, O::kSums);
  std::fill_n(sums, 2 * op.ranges.size(), 0.0);
  in_step<Rule>(op, args, [&](double t, double factor, auto numbers) {
    for (size_t r = 0; r < op.ranges.size(); ++r) {
      const UpdateRange& range = op.ranges[r];
      const auto n = rule.numbers(rule.at_step(t), numbers(range, 1));
      for (int64_t i = range.begin; range.use_trust_ratio && i < range.end; ++i) {
        const double p = in(args, O::kParameters)[i];
        const double d =
            direction<Rule>(n, in(args, O::kGradients)[i + range.gradient_shift] * factor, p,
                            in(args, O::kSlots + I)[i + range.slot_shift]...);
        sums[2 * r] += p * p;
        sums[2 * r + 1] += d * d;
      }
    }
  });
}

template <class Rule, int... I>
void update(const Update& op, const Rule& rule, Args args, std::integer_sequence<int, I...>) {
  using O = Update;
  const bool overflows = in_step<Rule>(op, args, [&](double t, double factor, auto numbers) {
    for (size_t r = 0; r < op.ranges.size(); ++r) {
      const double ratio = kLayerWise<Rule> ? in(args, O::kTrustRatios)[r] : 1;
      const auto n = rule.numbers(rule.at_step(t), numbers(op.ranges[r], ratio));
      for (int64_t i = op.ranges[r].begin; i < op.ranges[r].end; ++i) {
        double& p = out(args, O::kParameters)[i];
        Rule::apply(n, in(args, O::kGradients)[i + op.ranges[r].gradient_shift] * factor, p,
                    out(args, O::kSlots + I)[i + op.ranges[r].slot_shift]...);
        copy_low(args, O::kLowPrecision, i, p);
        if (!args[O::kAverage]) continue;
        double& average = out(args, O::kAverage)[i];
        average += op.average.weight(t) * (p - average);
      }
    }
  });
  if (overflows) *out(args, O::kSquares) *= -1;
}

}  // namespace

Plan plan(const SumOfSquares& op, Specs specs) {
  return host_op(std::move(specs), [=](Args args, void*) {
    double sum = 0;
    each(op.ranges, [&](const UpdateRange&, int64_t i) {
      sum += in(args, SumOfSquares::kX)[i] * in(args, SumOfSquares::kX)[i];
    });
    each(op.checked_ranges,
         [&](const UpdateRange&, int64_t i) { sum += 0 * in(args, SumOfSquares::kX)[i]; });
    *out(args, SumOfSquares::kSum) = sum;
  });
}

Plan plan(const TensorSquares& op, Specs specs) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          return host_op(std::move(specs), [op, rule](Args args, void*) {
            tensor_squares(op, rule, args, SlotNumbers<Rule>());
          });
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
}

Plan plan(const TrustRatios& op, Specs specs) {
  using O = TrustRatios;
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          return host_op(std::move(specs), [op, rule](Args args, void*) {
            for (size_t r = 0; r < op.ranges.size(); ++r) {
              const double rate = double{reference::state(args, O::kState).learning_rate} *
                                  double{op.ranges[r].learning_rate_scale};
              const double* sums = in(args, O::kSums) + 2 * r;
              out(args, O::kRatios)[r] =
                  trust_ratio(rule, {rate, op.ranges[r].weight_decay, 1}, sums[0], sums[1]);
            }
          });
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
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
