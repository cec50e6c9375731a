// The update rules of optimizers, for one element of the parameters. A rule is a struct of its
// hyperparameters with
//
//   kSlots     the names of its state per element (slots), initialized with zeros;
//   Step       values that depend only on the number of the step, which starts at 1;
//   Numbers    values that are the same for all elements of a range in a step;
//   apply      updates an element p with gradient g, and its slots.
//
// A layer-wise rule (LARS, LAMB) also scales the step of each tensor by a trust ratio. The ops
// TensorSquares and TrustRatios compute it beforehand from two norms of the tensor. Such a rule has
//
//   direction    returns the value whose norm over the tensor is the second norm; may update the
//                slots passed to it in the same way as apply;
//   trust_ratio  returns the ratio, given the norms of the parameters and of their direction, both
//                nonzero.
//
// Every backend compiles these functions with T = float, the reference with T = double.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <variant>

#include "core/vectorized.h"

namespace trireme::ops {

// The settings of a range in a step.
template <class T>
struct RangeNumbers {
  T learning_rate, weight_decay;
  T trust_ratio;  // 1 if the rule is not layer-wise
};

// Stochastic gradient descent:
//   g += weight_decay * p;  p -= learning_rate * g
struct Sgd {
  static constexpr std::array<const char*, 0> kSlots{};

  struct Step {};
  constexpr Step at_step(double) const { return {}; }

  template <class T>
  using Numbers = RangeNumbers<T>;
  template <class T>
  constexpr Numbers<T> numbers(const Step&, const RangeNumbers<T>& range) const {
    return range;
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const RangeNumbers<T>& n, T g, T& p) {
    p -= n.learning_rate * (g + n.weight_decay * p);
  }
};

// SGD with momentum, as in PyTorch:
//   v = momentum * v + g;  p -= learning_rate * (nesterov ? g + momentum * v : v)
struct SgdMomentum {
  static constexpr std::array kSlots{"velocity"};
  float momentum = 0.9f;
  bool nesterov = false;

  struct Step {};
  constexpr Step at_step(double) const { return {}; }

  template <class T>
  struct Numbers {
    T learning_rate, weight_decay, momentum;
    T from_gradient, from_velocity;  // one expression computes both variants
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step&, const RangeNumbers<T>& range) const {
    return {range.learning_rate, range.weight_decay, T{momentum}, nesterov ? T{1} : T{0},
            nesterov ? T{momentum} : T{1}};
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const Numbers<T>& n, T g, T& p, T& v) {
    const T gradient = g + n.weight_decay * p;
    const T velocity = n.momentum * v + gradient;
    v = velocity;
    p -= n.learning_rate * (n.from_gradient * gradient + n.from_velocity * velocity);
  }
};

// Adam (Kingma and Ba, arXiv:1412.6980) and, decoupled, AdamW (Loshchilov and Hutter,
// arXiv:1711.05101).
struct Adam {
  static constexpr std::array kSlots{"moment1", "moment2"};
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  bool decoupled = false;

  // Bias corrections of the moments.
  struct Step {
    double correction1, inv_sqrt_correction2;
  };
  template <class Real>
  constexpr Step at_step(Real t) const {
    return {1 - std::pow(Real{beta1}, t), 1 / std::sqrt(1 - std::pow(Real{beta2}, t))};
  }

  template <class T>
  struct Numbers {
    // Coupled decay is added to the gradient; decoupled decay multiplies p by `decay_factor`.
    T weight_decay, decay_factor;
    T beta1, beta2, epsilon;
    T step_size, inv_sqrt_correction2;
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step& step, const RangeNumbers<T>& range) const {
    return {.weight_decay = decoupled ? T{0} : range.weight_decay,
            .decay_factor = decoupled ? 1 - range.learning_rate * range.weight_decay : T{1},
            .beta1 = T{beta1},
            .beta2 = T{beta2},
            .epsilon = T{epsilon},
            .step_size = static_cast<T>(range.learning_rate / step.correction1),
            .inv_sqrt_correction2 = static_cast<T>(step.inv_sqrt_correction2)};
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const Numbers<T>& n, T g, T& p, T& m1, T& m2) {
    const T gradient = g + n.weight_decay * p;
    m1 = n.beta1 * m1 + (1 - n.beta1) * gradient;
    m2 = n.beta2 * m2 + (1 - n.beta2) * gradient * gradient;
    p = p * n.decay_factor -
        n.step_size * m1 / (std::sqrt(m2) * n.inv_sqrt_correction2 + n.epsilon);
  }
};

// Lion (Chen et al., arXiv:2302.06675), where sign(0) is 0:
//   p -= learning_rate * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
//   m = beta2 * m + (1 - beta2) * g
struct Lion {
  static constexpr std::array kSlots{"momentum"};
  float beta1 = 0.9f;
  float beta2 = 0.99f;

  struct Step {};
  constexpr Step at_step(double) const { return {}; }

  template <class T>
  struct Numbers {
    T learning_rate, weight_decay, beta1, beta2;
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step&, const RangeNumbers<T>& range) const {
    return {range.learning_rate, range.weight_decay, T{beta1}, T{beta2}};
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const Numbers<T>& n, T g, T& p, T& m) {
    const T mix = n.beta1 * m + (1 - n.beta1) * g;
    const T sign = mix > 0 ? T{1} : mix < 0 ? T{-1} : T{0};
    p -= n.learning_rate * (sign + n.weight_decay * p);
    m = n.beta2 * m + (1 - n.beta2) * g;
  }
};

// LARS (You et al., arXiv:1708.03888), with the learning rate applied after the momentum, as in
// SgdMomentum:
//   ratio = trust_coefficient * |p| / (|g| + weight_decay * |p| + epsilon)
//   g = ratio * (g + weight_decay * p);  then SgdMomentum
// With trust_clip the ratio is min(ratio / learning_rate, 1), as in LARC: the tensor then has its
// own learning rate, with the configured one as upper limit.
struct Lars {
  static constexpr auto kSlots = SgdMomentum::kSlots;
  SgdMomentum sgd = {};
  float trust_coefficient = 0.001f;
  float epsilon = 1e-8f;
  bool trust_clip = false;

  using Step = SgdMomentum::Step;
  constexpr Step at_step(double) const { return {}; }

  template <class T>
  struct Numbers {
    SgdMomentum::Numbers<T> sgd;
    T trust_ratio;
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step& step, RangeNumbers<T> range) const {
    range.weight_decay *= range.trust_ratio;
    return {sgd.numbers(step, range), range.trust_ratio};
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const Numbers<T>& n, T g, T& p, T& v) {
    SgdMomentum::apply(n.sgd, n.trust_ratio * g, p, v);
  }
  template <class T>
  TRIREME_INLINE static constexpr T direction(const Numbers<T>&, T g, T, T&) {
    return g;
  }
  constexpr double trust_ratio(const RangeNumbers<double>& range, double parameters,
                               double direction) const {
    const double ratio = trust_coefficient * parameters /
                         (direction + range.weight_decay * parameters + double{epsilon});
    if (!trust_clip) return ratio;
    return ratio < range.learning_rate ? ratio / range.learning_rate : 1;
  }
};

// LAMB (You et al., arXiv:1904.00962), where m and v are the bias-corrected moments of Adam:
//   r = m / (sqrt(v) + epsilon) + weight_decay * p
//   p -= learning_rate * |p| / |r| * r
// With trust_clip, |p| / |r| is limited to 1.
struct Lamb {
  static constexpr auto kSlots = Adam::kSlots;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
  bool trust_clip = false;

  using Step = Adam::Step;
  template <class Real>
  constexpr Step at_step(Real t) const {
    return Adam{.beta1 = beta1, .beta2 = beta2}.at_step(t);
  }

  template <class T>
  struct Numbers {
    T weight_decay, beta1, beta2, epsilon;
    T inv_correction1, inv_sqrt_correction2;
    T step_size;
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step& step, const RangeNumbers<T>& range) const {
    return {.weight_decay = range.weight_decay,
            .beta1 = T{beta1},
            .beta2 = T{beta2},
            .epsilon = T{epsilon},
            .inv_correction1 = static_cast<T>(1 / step.correction1),
            .inv_sqrt_correction2 = static_cast<T>(step.inv_sqrt_correction2),
            .step_size = range.learning_rate * range.trust_ratio};
  }

  template <class T>
  TRIREME_INLINE static constexpr void apply(const Numbers<T>& n, T g, T& p, T& m1, T& m2) {
    p -= n.step_size * direction(n, g, p, m1, m2);
  }
  template <class T>
  TRIREME_INLINE static constexpr T direction(const Numbers<T>& n, T g, T p, T& m1, T& m2) {
    m1 = n.beta1 * m1 + (1 - n.beta1) * g;
    m2 = n.beta2 * m2 + (1 - n.beta2) * g * g;
    return n.inv_correction1 * m1 / (std::sqrt(m2) * n.inv_sqrt_correction2 + n.epsilon) +
           n.weight_decay * p;
  }
  constexpr double trust_ratio(const RangeNumbers<double>&, double parameters,
                               double direction) const {
    const double ratio = parameters / direction;
    return trust_clip && ratio > 1 ? 1 : ratio;
  }
};

using UpdateRule = std::variant<Sgd, SgdMomentum, Adam, Lion, Lars, Lamb>;
constexpr int kMaxSlots = 2;  // maximum number of slots of a rule

template <class Rule>
constexpr bool kLayerWise = requires {
  &Rule::trust_ratio;
};

// The largest L2 norm of a gradient that the rule can process in f32. A larger one would have a
// square that is infinite, and so would be the second moment of Adam and LAMB, for all later steps.
template <class Rule>
inline constexpr double kMaxGradientNorm = std::numeric_limits<double>::infinity();
template <>
inline constexpr double kMaxGradientNorm<Adam> = 1.8446743e19;
template <>
inline constexpr double kMaxGradientNorm<Lamb> = kMaxGradientNorm<Adam>;

constexpr bool is_layer_wise(const UpdateRule& rule) {
  return std::visit([]<class Rule>(const Rule&) { return kLayerWise<Rule>; }, rule);
}

// Returns the trust ratio, given sums of squares. Returns 1 if either is 0, e.g. for a tensor that
// is initialized with zeros.
template <class Rule>
constexpr double trust_ratio(const Rule& rule, const RangeNumbers<double>& range, double parameters,
                             double direction) {
  if (parameters == 0 || direction == 0) return 1;
  return rule.trust_ratio(range, std::sqrt(parameters), std::sqrt(direction));
}

constexpr std::span<const char* const> slots_of(const UpdateRule& rule) {
  return std::visit([](const auto& chosen) { return std::span<const char* const>(chosen.kSlots); },
                    rule);
}

// The indices of the slots: 0, 1, ...
template <class Rule>
using SlotNumbers = std::make_integer_sequence<int, int{Rule::kSlots.size()}>;

// An exponential moving average of each parameter. In step t, counted from 1:
//   average += weight(t) * (p - average)
struct MovingAverage {
  double decay = 0;
  // Limits the decay to (1 + t) / (10 + t), so that the initial value is forgotten quickly.
  bool warmup = false;

  constexpr double weight(double t) const {
    const double min_weight = warmup ? 9 / (10 + t) : 0;
    return 1 - decay > min_weight ? 1 - decay : min_weight;
  }
};

}  // namespace trireme::ops
