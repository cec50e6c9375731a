// How optimizers change one element of the parameters. A rule is a struct of its settings with
//
//   kSlots     the names of what it remembers of each element, which starts as zeros;
//   Step       what depends on the number of the step alone, counted from 1;
//   Numbers    what is the same for all elements of a range in a step;
//   apply      the update of an element p, whose gradient is g, and of its slots.
//
// Every backend compiles these functions: with T = float, in the reference with T = double.
#pragma once

#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <variant>

#include "core/vectorized.h"

namespace trireme::ops {

// What the configuration says of a range, in a step.
template <class T>
struct RangeNumbers {
  T learning_rate, weight_decay;
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

// The same with momentum, as PyTorch writes it:
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
    T from_gradient, from_velocity;  // one expression for both kinds
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

  // Of the moments' bias.
  struct Step {
    double correction1, inv_sqrt_correction2;
  };
  template <class Real>
  constexpr Step at_step(Real t) const {
    return {1 - std::pow(Real{beta1}, t), 1 / std::sqrt(1 - std::pow(Real{beta2}, t))};
  }

  template <class T>
  struct Numbers {
    T weight_decay, kept;  // coupled: added to the gradient; decoupled: what is left of p
    T beta1, beta2, epsilon;
    T step_size, inv_sqrt_correction2;
  };
  template <class T>
  constexpr Numbers<T> numbers(const Step& step, const RangeNumbers<T>& range) const {
    return {.weight_decay = decoupled ? T{0} : range.weight_decay,
            .kept = decoupled ? 1 - range.learning_rate * range.weight_decay : T{1},
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
    p = p * n.kept - n.step_size * m1 / (std::sqrt(m2) * n.inv_sqrt_correction2 + n.epsilon);
  }
};

using UpdateRule = std::variant<Sgd, SgdMomentum, Adam>;
constexpr int kMaxSlots = 2;  // of any rule

constexpr std::span<const char* const> slots_of(const UpdateRule& rule) {
  return std::visit([](const auto& chosen) { return std::span<const char* const>(chosen.kSlots); },
                    rule);
}

// 0, 1, ...: one for each slot.
template <class Rule>
using SlotNumbers = std::make_integer_sequence<int, int{Rule::kSlots.size()}>;

}  // namespace trireme::ops
