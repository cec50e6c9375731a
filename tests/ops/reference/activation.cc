#include <cmath>
#include <numbers>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
// The argument of the tanh in GELU's approximation, and its derivative.
double gelu_inner(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double gelu_inner_slope(double x) {
  return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

}  // namespace

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kGelu:
      return x * normal_cdf(x);
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(gelu_inner(x)));
    case Activation::kSilu:
      return x * sigmoid(x);
  }
  return x;
}

double derivative(Activation activation, double x, double y) {
  switch (activation) {
    case Activation::kNone:
      return 1;
    case Activation::kRelu:
      return y > 0 ? 1 : 0;
    case Activation::kSigmoid:
      return y * (1 - y);
    case Activation::kTanh:
      return 1 - y * y;
    case Activation::kGelu:
      return normal_cdf(x) + x * normal_pdf(x);
    case Activation::kGeluTanh: {
      const double t = std::tanh(gelu_inner(x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_inner_slope(x);
    }
    case Activation::kSilu:
      return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  }
  return 1;
}

Plan plan(const ActivationForward& op, Specs specs) {
  using O = ActivationForward;
  const int64_t count = specs[O::kX].shape.elements();
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < count; ++i) {
      out(args, O::kY)[i] = activate(op.activation, in(args, O::kX)[i]);
    }
  });
}

Plan plan(const ActivationBackward& op, Specs specs) {
  using O = ActivationBackward;
  const int64_t count = specs[O::kDx].shape.elements();
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < count; ++i) {
      const double saved = in(args, O::kSaved)[i];
      out(args, O::kDx)[i] = in(args, O::kDy)[i] * derivative(op.activation, saved, saved);
    }
  });
}

}  // namespace trireme::ops::reference
