// Elementwise nonlinearities.
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

// Whether the derivative is computed from the output (true) or from the input.
constexpr bool derivative_uses_output(Activation activation) {
  return activation == Activation::kRelu || activation == Activation::kSigmoid ||
         activation == Activation::kTanh;
}

// Refuses an activation at the end of another op unless its derivative_uses_output.
void check_fused(const Checker& c, Activation activation);

// y = f(x), any shape. y may be x.
struct ActivationForward {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  Activation activation = Activation::kRelu;
};

// dx = dy * f'. kSaved is y where derivative_uses_output, else x. dx may be dy.
struct ActivationBackward {
  enum Arg { kSaved, kDy, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  Activation activation = Activation::kRelu;
};

}  // namespace trireme::ops
