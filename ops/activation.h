// Elementwise activation functions.
#pragma once

#include <string_view>

#include "ops/op_info.h"

namespace trireme::ops {

enum class Activation {
  kNone,
  kRelu,
  kSigmoid,
  kTanh,
  kGelu,      // x * Phi(x), exact (Hendrycks and Gimpel, arXiv:1606.08415)
  kGeluTanh,  // its tanh approximation
  kSilu,      // x * sigmoid(x)
};

constexpr std::string_view name_of(Activation activation) {
  constexpr std::string_view kNames[] = {"none", "relu",      "sigmoid", "tanh",
                                         "gelu", "gelu_tanh", "silu"};
  return kNames[static_cast<int>(activation)];
}

// Returns true if the derivative is computed from the output, false if from the input.
constexpr bool derivative_uses_output(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kSigmoid ||
         activation == Activation::kTanh;
}

// Throws Error if the activation cannot be fused into another op: it must be kNone or have
// derivative_uses_output.
void check_fused(const Checker& c, Activation activation);

// y = f(x), any shape. y may be x.
struct ActivationForward {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  Activation activation = Activation::kRelu;
};

// dx = dy * f'. kSaved is y if derivative_uses_output, otherwise x. dx may be dy.
struct ActivationBackward {
  enum Arg { kSaved, kDy, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  Activation activation = Activation::kRelu;
};

}  // namespace trireme::ops
