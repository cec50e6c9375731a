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

namespace trireme::cpu {
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

struct SgdNumbers {
  float gradient_factor, weight_decay, momentum, learning_rate;
  bool nesterov;
};

TRIREME_VECTORIZED void sgd_plain(float* p, const float* g, int64_t count, const SgdNumbers& n) {
  for (int64_t i = 0; i < count; ++i) {
    p[i] -= n.learning_rate * (g[i] * n.gradient_factor + n.weight_decay * p[i]);
  }
}

TRIREME_VECTORIZED void sgd_momentum(float* __restrict p, const float* __restrict g,
                                     float* __restrict v, int64_t count, const SgdNumbers& n) {
  // v - or g + momentum * v: one expression for both.
  const float from_gradient = n.nesterov ? 1 : 0;
  const float from_velocity = n.nesterov ? n.momentum : 1;
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * n.gradient_factor + n.weight_decay * p[i];
    const float velocity = n.momentum * v[i] + gradient;
    v[i] = velocity;
    p[i] -= n.learning_rate * (from_gradient * gradient + from_velocity * velocity);
  }
}

struct AdamNumbers {
  float gradient_factor;
  float weight_decay, decay_factor;  // coupled: added to the gradient; decoupled: shrinks p
  float beta1, beta2, epsilon;
  float step_size;            // learning rate over the first moment's bias correction
  float inv_sqrt_correction;  // of the second moment
};

TRIREME_VECTORIZED void adam(float* __restrict p, const float* __restrict g, float* __restrict m1,
                             float* __restrict m2, int64_t count, const AdamNumbers& n) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = g[i] * n.gradient_factor + n.weight_decay * p[i];
    m1[i] = n.beta1 * m1[i] + (1 - n.beta1) * gradient;
    m2[i] = n.beta2 * m2[i] + (1 - n.beta2) * gradient * gradient;
    p[i] = p[i] * n.decay_factor -
           n.step_size * m1[i] / (__builtin_sqrtf(m2[i]) * n.inv_sqrt_correction + n.epsilon);
  }
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

void update_sgd(const SgdUpdate& op, const std::vector<UpdateRange>& pieces, DType low_dtype,
                Args args) {
  const auto& state = *pointer<const StepState>(args, SgdUpdate::kState);
  const std::optional<float> factor =
      gradient_factor(op.max_norm, pointer<const double>(args, SgdUpdate::kSquares),
                      pointer<const LossScale>(args, SgdUpdate::kLossScale));
  if (!factor) return;
  auto* p = pointer<float>(args, SgdUpdate::kParameters);
  const auto* g = pointer<const float>(args, SgdUpdate::kGradients);
  auto* v = pointer<float>(args, SgdUpdate::kVelocity);
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const UpdateRange& piece = pieces[static_cast<size_t>(i)];
      const int64_t at = piece.begin;
      const int64_t count = piece.end - piece.begin;
      const SgdNumbers numbers{*factor, piece.weight_decay, op.momentum,
                               state.learning_rate * piece.learning_rate_scale, op.nesterov};
      if (v && op.momentum != 0) {
        sgd_momentum(p + at, g + at, v + at, count, numbers);
      } else {
        sgd_plain(p + at, g + at, count, numbers);
      }
      copy_low_precision(p, args[SgdUpdate::kLowPrecision], low_dtype, at, count);
    }
  });
}

void update_adam(const AdamUpdate& op, const std::vector<UpdateRange>& pieces, DType low_dtype,
                 Args args) {
  const auto& state = *pointer<const StepState>(args, AdamUpdate::kState);
  const auto* loss_scale = pointer<const LossScale>(args, AdamUpdate::kLossScale);
  const std::optional<float> factor =
      gradient_factor(op.max_norm, pointer<const double>(args, AdamUpdate::kSquares), loss_scale);
  if (!factor) return;
  const auto t = static_cast<double>(state.step + 1 - (loss_scale ? loss_scale->skipped : 0));
  const double correction1 = 1 - std::pow(static_cast<double>(op.beta1), t);
  const double correction2 = 1 - std::pow(static_cast<double>(op.beta2), t);
  auto* p = pointer<float>(args, AdamUpdate::kParameters);
  const auto* g = pointer<const float>(args, AdamUpdate::kGradients);
  auto* m1 = pointer<float>(args, AdamUpdate::kMoment1);
  auto* m2 = pointer<float>(args, AdamUpdate::kMoment2);
  parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const UpdateRange& piece = pieces[static_cast<size_t>(i)];
      const int64_t at = piece.begin;
      const int64_t count = piece.end - piece.begin;
      const float rate = state.learning_rate * piece.learning_rate_scale;
      const AdamNumbers numbers{
          .gradient_factor = *factor,
          .weight_decay = op.decoupled ? 0 : piece.weight_decay,
          .decay_factor = op.decoupled ? 1 - rate * piece.weight_decay : 1,
          .beta1 = op.beta1,
          .beta2 = op.beta2,
          .epsilon = op.epsilon,
          .step_size = static_cast<float>(rate / correction1),
          .inv_sqrt_correction = static_cast<float>(1 / std::sqrt(correction2))};
      adam(p + at, g + at, m1 + at, m2 + at, count, numbers);
      copy_low_precision(p, args[AdamUpdate::kLowPrecision], low_dtype, at, count);
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

Plan plan(const SgdUpdate& op, const EnginePtr&, Specs given) {
  return host_op(in_row_major(given),
                 [op, pieces = cut(op.ranges), low = given[SgdUpdate::kLowPrecision].dtype](
                     Args args, void*) { update_sgd(op, pieces, low, args); });
}

Plan plan(const AdamUpdate& op, const EnginePtr&, Specs given) {
  return host_op(in_row_major(given),
                 [op, pieces = cut(op.ranges), low = given[AdamUpdate::kLowPrecision].dtype](
                     Args args, void*) { update_adam(op, pieces, low, args); });
}

}  // namespace trireme::cpu
