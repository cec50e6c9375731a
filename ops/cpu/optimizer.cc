// Optimizer updates in one pass over pieces of the flat arrays.
#include "ops/optimizer.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/loss_scale.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {
namespace {

// Elements of a piece. Pieces are small enough to distribute over threads, and do not depend on the
// number of threads.
constexpr int64_t kPiece = 1 << 14;

struct Piece : UpdateRange {
  size_t range = 0;  // index of the range
};

std::vector<Piece> cut(const std::vector<UpdateRange>& ranges) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (int64_t begin = ranges[i].begin; begin < ranges[i].end; begin += kPiece) {
      Piece piece{ranges[i], i};
      piece.begin = begin;
      piece.end = std::min(begin + kPiece, ranges[i].end);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

template <class F>
void each_piece(const std::vector<Piece>& pieces, F f) {
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(static_cast<size_t>(i));
  });
}

TRIREME_INLINE inline double total(const LaneSums& sums) {
  double lanes[kLanes];
  sums.store_to(lanes);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

TRIREME_VECTORIZED double sum_of_squares(const float* x, int64_t count) {
  LaneSums sums;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F16 v = load(x + i, AllLanes());
    sums.add_product(v, v);
  }
  double sum = total(sums);
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// Values that are the same for all elements in a step.
template <class Rule>
struct StepNumbers {
  float gradient_factor;
  float learning_rate;
  double number;  // number of the step, from 1
  typename Rule::Step step;

  RangeNumbers<float> of(const UpdateRange& range, float trust_ratio) const {
    return {learning_rate * range.learning_rate_scale, range.weight_decay, trust_ratio};
  }
};

// Returns the numbers of a step of Update or TensorSquares, or nullopt if the update is skipped; an
// Update then notes in kSquares whether the reason is an overflow.
template <class Op, class Rule>
std::optional<StepNumbers<Rule>> step_numbers(const Rule& rule, float max_norm, Args args) {
  const auto& state = *pointer<StepState>(args, Op::kState);
  const auto* loss_scale = pointer<LossScale>(args, Op::kLossScale);
  const auto* metrics = pointer<float>(args, Op::kMetrics);
  auto* squares = pointer<double>(args, Op::kSquares);
  const GradientScaling scaling = gradient_scaling<Rule>(
      max_norm, squares, loss_scale,
      metrics ? label_correction(state, static_cast<double>(metrics[kMetricWeight])) : 1);
  if (scaling.overflows && std::is_same_v<Op, Update>) *squares = -*squares;
  if (scaling.is_skipped) return std::nullopt;
  const auto number = static_cast<double>(state.step + 1 - (loss_scale ? loss_scale->skipped : 0));
  return StepNumbers<Rule>{scaling.factor, state.learning_rate, number, rule.at_step(number)};
}

template <class Rule, class... Slot>
TRIREME_VECTORIZED void update_piece(const typename Rule::template Numbers<float>& n, float factor,
                                     float* __restrict p, const float* __restrict g, int64_t count,
                                     Slot* __restrict... slots) {
  for (int64_t i = 0; i < count; ++i) Rule::apply(n, g[i] * factor, p[i], slots[i]...);
}

// Returns the direction without changing the slots, which are passed by value.
template <class Rule, class... Slot>
TRIREME_INLINE inline float direction_of(const typename Rule::template Numbers<float>& n, float g,
                                         float p, Slot... slots) {
  return Rule::direction(n, g, p, slots...);
}

struct Squares {
  double parameters = 0, direction = 0;

  Squares& operator+=(const Squares& other) {
    parameters += other.parameters;
    direction += other.direction;
    return *this;
  }
};

template <class Rule, class... Slot>
TRIREME_VECTORIZED Squares squares_of_piece(const typename Rule::template Numbers<float>& n,
                                            float factor, const float* __restrict p,
                                            const float* __restrict g, int64_t count,
                                            const Slot* __restrict... slots) {
  LaneSums parameters, direction;
  alignas(64) float d[kLanes];
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      d[j] = direction_of<Rule>(n, g[i + j] * factor, p[i + j], slots[i + j]...);
    }
    const F16 in_p = load(p + i, AllLanes()), in_d = load(d, AllLanes());
    parameters.add_product(in_p, in_p);
    direction.add_product(in_d, in_d);
  }
  Squares sum{total(parameters), total(direction)};
  for (; i < count; ++i) {
    const float last = direction_of<Rule>(n, g[i] * factor, p[i], slots[i]...);
    sum += {static_cast<double>(p[i]) * p[i], static_cast<double>(last) * last};
  }
  return sum;
}

TRIREME_VECTORIZED void update_average(float weight, const float* __restrict p,
                                       float* __restrict average, int64_t count) {
  for (int64_t i = 0; i < count; ++i) average[i] += weight * (p[i] - average[i]);
}

template <class T>
TRIREME_VECTORIZED void convert(const float* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

// Writes the copy in the compute dtype, if there is one.
void copy_low_precision(const float* parameters, void* low, DType dtype, int64_t begin,
                        int64_t count) {
  if (!low) return;
  with_element(
      dtype, [&]<class T>(T) { convert(parameters + begin, static_cast<T*>(low) + begin, count); });
}

template <class Rule, int... I>
void tensor_squares(const Rule& rule, const TensorSquares& op, const std::vector<Piece>& pieces,
                    Args args, Squares* squares, std::integer_sequence<int, I...>) {
  using Op = TensorSquares;
  auto* sums = pointer<Squares>(args, Op::kSums);
  std::fill_n(sums, op.ranges.size(), Squares());
  const auto step = step_numbers<Op>(rule, op.max_norm, args);
  if (!step) return;
  const auto* p = pointer<const float>(args, Op::kParameters);
  const auto* g = pointer<const float>(args, Op::kGradients);
  each_piece(pieces, [&](size_t i) {
    const Piece& piece = pieces[i];
    const int64_t at = piece.begin, slot = at + piece.slot_shift;
    const float* const gradients = g + at + piece.gradient_shift;
    if (!piece.use_trust_ratio) return;
    squares[i] = squares_of_piece<Rule>(rule.numbers(step->step, step->of(piece, 1)),
                                        step->gradient_factor, p + at, gradients, piece.end - at,
                                        pointer<const float>(args, Op::kSlots + I) + slot...);
  });
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].use_trust_ratio) sums[pieces[i].range] += squares[i];
  }
}

template <class Rule, int... I>
void update(const Rule& rule, const Update& op, const std::vector<Piece>& pieces, DType low_dtype,
            Args args, std::integer_sequence<int, I...>) {
  using Op = Update;
  const auto step = step_numbers<Op>(rule, op.max_norm, args);
  if (!step) return;
  auto* p = pointer<float>(args, Op::kParameters);
  auto* average = pointer<float>(args, Op::kAverage);
  const auto* g = pointer<const float>(args, Op::kGradients);
  const auto* ratios = pointer<const float>(args, Op::kTrustRatios);
  const auto weight = static_cast<float>(op.average.weight(step->number));
  each_piece(pieces, [&](size_t i) {
    const Piece& piece = pieces[i];
    const int64_t at = piece.begin, slot = at + piece.slot_shift;
    const float* const gradients = g + at + piece.gradient_shift;
    const int64_t count = piece.end - at;
    const auto n =
        rule.numbers(step->step, step->of(piece, kLayerWise<Rule> ? ratios[piece.range] : 1));
    update_piece<Rule>(n, step->gradient_factor, p + at, gradients, count,
                       pointer<float>(args, Op::kSlots + I) + slot...);
    if (average) update_average(weight, p + at, average + at, count);
    copy_low_precision(p, args[Op::kLowPrecision], low_dtype, at, count);
  });
}

}  // namespace

Plan plan(const SumOfSquares& op, const EnginePtr&, Specs given) {
  using Op = SumOfSquares;
  std::vector<Piece> pieces = cut(op.ranges);
  const size_t counted = pieces.size();
  for (const Piece& piece : cut(op.checked_ranges)) pieces.push_back(piece);
  const size_t scratch_bytes = pieces.size() * sizeof(double);
  return host_op(
      in_row_major(given),
      [pieces = std::move(pieces), counted](Args args, void* scratch) {
        const auto* x = pointer<const float>(args, Op::kX);
        auto* sums = static_cast<double*>(scratch);
        each_piece(pieces, [&](size_t i) {
          sums[i] = sum_of_squares(x + pieces[i].begin, pieces[i].end - pieces[i].begin);
        });
        double total = 0;
        for (size_t i = 0; i < counted; ++i) total += sums[i];
        for (size_t i = counted; i < pieces.size(); ++i) total += 0 * sums[i];
        *pointer<double>(args, Op::kSum) = total;
      },
      scratch_bytes);
}

Plan plan(const TensorSquares& op, const EnginePtr&, Specs given) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          std::vector<Piece> pieces = cut(op.ranges);
          const size_t scratch_bytes = pieces.size() * sizeof(Squares);
          return host_op(
              in_row_major(given),
              [rule, op, pieces = std::move(pieces)](Args args, void* scratch) {
                tensor_squares(rule, op, pieces, args, static_cast<Squares*>(scratch),
                               SlotNumbers<Rule>());
              },
              scratch_bytes);
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
}

Plan plan(const TrustRatios& op, const EnginePtr&, Specs given) {
  using Op = TrustRatios;
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          return host_op(in_row_major(given), [rule, ranges = op.ranges](Args args, void*) {
            const auto* sums = pointer<const Squares>(args, Op::kSums);
            auto* ratios = pointer<float>(args, Op::kRatios);
            const float learning_rate = pointer<StepState>(args, Op::kState)->learning_rate;
            for (size_t i = 0; i < ranges.size(); ++i) {
              const float rate = learning_rate * ranges[i].learning_rate_scale;
              ratios[i] = static_cast<float>(trust_ratio(rule, {rate, ranges[i].weight_decay, 1},
                                                         sums[i].parameters, sums[i].direction));
            }
          });
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
}

Plan plan(const Update& op, const EnginePtr&, Specs given) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) {
        return host_op(
            in_row_major(given),
            [rule, op, pieces = cut(op.ranges), low = given[Update::kLowPrecision].dtype](
                Args args, void*) { update(rule, op, pieces, low, args, SlotNumbers<Rule>()); });
      },
      op.rule);
}

}  // namespace trireme::ops::cpu
