// Optimizer updates, in one pass over pieces of the flat arrays.
#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/parallel.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/loss_scale.h"
#include "ops/settle.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {
namespace {

// Pieces are small enough to share out among threads, and the same for any number of them.
constexpr int64_t kPiece = 1 << 14;

std::vector<UpdateRange> cut(const std::vector<UpdateRange>& ranges) {
  std::vector<UpdateRange> pieces;
  for (UpdateRange range : ranges) {
    for (int64_t begin = range.begin; begin < range.end; begin += kPiece) {
      UpdateRange piece = range;
      piece.begin = begin;
      piece.end = std::min(begin + kPiece, range.end);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

TRIREME_VECTORIZED double sum_of_squares(const float* x, int64_t count) {
  LaneSums sums;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F16 v = load(x + i, AllLanes());
    sums.add_product(v, v);
  }
  double lanes[kLanes];
  sums.store_to(lanes);
  double total = 0;
  for (double lane : lanes) total += lane;
  for (; i < count; ++i) total += static_cast<double>(x[i]) * x[i];
  return total;
}

// What gradients are multiplied by: one over the loss scale, and what takes their norm down to
// max_norm. None where they are not finite and the update is skipped.
std::optional<float> gradient_factor(float max_norm, const double* squares,
                                     const LossScale* loss_scale) {
  if (loss_scale && !std::isfinite(*squares)) return std::nullopt;
  const double unscaled = loss_scale ? 1 / static_cast<double>(loss_scale->scale) : 1;
  const double norm = max_norm > 0 ? std::sqrt(*squares) * unscaled : 0;
  return static_cast<float>(norm > max_norm ? unscaled * max_norm / norm : unscaled);
}

template <class Rule, class... Slot>
TRIREME_VECTORIZED void update_piece(const typename Rule::template Numbers<float>& n, float factor,
                                     float* __restrict p, const float* __restrict g, int64_t count,
                                     Slot* __restrict... slots) {
  for (int64_t i = 0; i < count; ++i) Rule::apply(n, g[i] * factor, p[i], slots[i]...);
}

template <class T>
TRIREME_VECTORIZED void convert(const float* from, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = from_float<T>(from[i]);
}

// The copy in the compute dtype, if there is one.
void copy_low_precision(const float* parameters, void* low, DType dtype, int64_t begin,
                        int64_t count) {
  if (!low) return;
  with_element(
      dtype, [&]<class T>(T) { convert(parameters + begin, static_cast<T*>(low) + begin, count); });
}

template <class Rule, int... I>
void update(const Rule& rule, float max_norm, const std::vector<UpdateRange>& pieces,
            DType low_dtype, Args args, std::integer_sequence<int, I...>) {
  using Op = Update;
  const auto& state = *pointer<StepState>(args, Op::kState);
  const auto* loss_scale = pointer<LossScale>(args, Op::kLossScale);
  const std::optional<float> factor =
      gradient_factor(max_norm, pointer<double>(args, Op::kSquares), loss_scale);
  if (!factor) return;
  const auto step =
      rule.at_step(static_cast<double>(state.step + 1 - (loss_scale ? loss_scale->skipped : 0)));
  auto* p = pointer<float>(args, Op::kParameters);
  const auto* g = pointer<float>(args, Op::kGradients);
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const UpdateRange& piece = pieces[static_cast<size_t>(i)];
      const int64_t at = piece.begin;
      const int64_t count = piece.end - piece.begin;
      const RangeNumbers<float> range{state.learning_rate * piece.learning_rate_scale,
                                      piece.weight_decay};
      update_piece<Rule>(rule.numbers(step, range), *factor, p + at, g + at, count,
                         pointer<float>(args, Op::kSlots + I) + at...);
      copy_low_precision(p, args[Op::kLowPrecision], low_dtype, at, count);
    }
  });
}

}  // namespace

Plan plan(const SumOfSquares& op, const EnginePtr&, Specs given) {
  using Op = SumOfSquares;
  std::vector<UpdateRange> pieces = cut(op.ranges);
  const size_t counted = pieces.size();
  for (const UpdateRange& piece : cut(op.watched)) pieces.push_back(piece);
  const size_t scratch_bytes = pieces.size() * sizeof(double);
  return host_op(
      in_row_major(given),
      [pieces = std::move(pieces), counted](Args args, void* scratch) {
        const auto* x = pointer<const float>(args, Op::kX);
        auto* sums = static_cast<double*>(scratch);
        parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            const UpdateRange& piece = pieces[static_cast<size_t>(i)];
            sums[i] = sum_of_squares(x + piece.begin, piece.end - piece.begin);
          }
        });
        double total = 0;
        for (size_t i = 0; i < counted; ++i) total += sums[i];
        for (size_t i = counted; i < pieces.size(); ++i) total += 0 * sums[i];
        *pointer<double>(args, Op::kSum) = total;
      },
      scratch_bytes);
}

Plan plan(const Update& op, const EnginePtr&, Specs given) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) {
        return host_op(in_row_major(given),
                       [rule, max_norm = op.max_norm, pieces = cut(op.ranges),
                        low = given[Update::kLowPrecision].dtype](Args args, void*) {
                         update(rule, max_norm, pieces, low, args, SlotNumbers<Rule>());
                       });
      },
      op.rule);
}

}  // namespace trireme::ops::cpu
