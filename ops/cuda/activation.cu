#include <type_traits>

#include "ops/activation.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/map.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

constexpr float kSqrtHalf = 0.70710678f;
constexpr float kSqrtTwoOverPi = 0.79788456f;
constexpr float kInvSqrtTwoPi = 0.39894228f;
constexpr float kGeluCubic = 0.044715f;

__device__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
__device__ float normal_cdf(float x) { return 0.5f + 0.5f * erff(x * kSqrtHalf); }
__device__ float normal_pdf(float x) { return kInvSqrtTwoPi * expf(-0.5f * x * x); }
// The tanh of GELU's approximation.
__device__ float gelu_tanh(float x) {
  return tanhf(kSqrtTwoOverPi * x * (1.0f + kGeluCubic * x * x));
}

template <Activation kActivation>
__device__ float activate(float x) {
  switch (kActivation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kTanh:
      return tanhf(x);
    case Activation::kGelu:
      return x * normal_cdf(x);
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + gelu_tanh(x));
    case Activation::kSilu:
      return x * sigmoid(x);
  }
  return x;
}

// Returns f', computed from y = f(x) if derivative_uses_output, otherwise from x.
template <Activation kActivation>
__device__ float derivative(float saved) {
  const float x = saved, y = saved;
  switch (kActivation) {
    case Activation::kNone:
      return 1;
    case Activation::kRelu:
      return y > 0 ? 1 : 0;
    case Activation::kSigmoid:
      return y * (1.0f - y);
    case Activation::kTanh:
      return 1.0f - y * y;
    case Activation::kGelu:
      return normal_cdf(x) + x * normal_pdf(x);
    case Activation::kGeluTanh: {
      const float t = gelu_tanh(x);
      const float slope = kSqrtTwoOverPi * (1.0f + 3.0f * kGeluCubic * x * x);
      return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope;
    }
    case Activation::kSilu:
      return sigmoid(x) * (1.0f + x * (1.0f - sigmoid(x)));
  }
  return 1;
}

template <Activation kActivation>
struct Forward {
  __device__ float operator()(float x) const { return activate<kActivation>(x); }
};

template <Activation kActivation>
struct Backward {
  __device__ float operator()(float saved, float dy) const {
    return dy * derivative<kActivation>(saved);
  }
};

// Calls f(std::integral_constant<Activation, activation>()).
template <class F>
Plan with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::kNone:
      return f(std::integral_constant<Activation, Activation::kNone>());
    case Activation::kRelu:
      return f(std::integral_constant<Activation, Activation::kRelu>());
    case Activation::kSigmoid:
      return f(std::integral_constant<Activation, Activation::kSigmoid>());
    case Activation::kTanh:
      return f(std::integral_constant<Activation, Activation::kTanh>());
    case Activation::kGelu:
      return f(std::integral_constant<Activation, Activation::kGelu>());
    case Activation::kGeluTanh:
      return f(std::integral_constant<Activation, Activation::kGeluTanh>());
    case Activation::kSilu:
      return f(std::integral_constant<Activation, Activation::kSilu>());
  }
  throw Error("no CUDA kernel computes this activation");
}

template <Activation kActivation, class T>
Plan plan_forward(std::vector<TensorSpec> specs) {
  using Op = ActivationForward;
  const int64_t count = specs[Op::kY].shape.elements();
  return function_op(std::move(specs), [count](Stream& stream, Args args, void*) {
    map("activation_forward", stream, count, Forward<kActivation>(), pointer<T>(args, Op::kY),
        pointer<const T>(args, Op::kX));
  });
}

template <Activation kActivation, class T>
Plan plan_backward(std::vector<TensorSpec> specs) {
  using Op = ActivationBackward;
  const int64_t count = specs[Op::kDx].shape.elements();
  return function_op(std::move(specs), [count](Stream& stream, Args args, void*) {
    map("activation_backward", stream, count, Backward<kActivation>(), pointer<T>(args, Op::kDx),
        pointer<const T>(args, Op::kSaved), pointer<const T>(args, Op::kDy));
  });
}

}  // namespace

Plan plan(const ActivationForward& op, const ContextPtr&, Specs given) {
  std::vector<TensorSpec> specs = in_one_layout(given);
  return with_element(specs[ActivationForward::kY].dtype, [&]<class T>(T) {
    return with_activation(op.activation, [&](auto activation) {
      return plan_forward<activation(), T>(std::move(specs));
    });
  });
}

Plan plan(const ActivationBackward& op, const ContextPtr&, Specs given) {
  std::vector<TensorSpec> specs = in_one_layout(given);
  return with_element(specs[ActivationBackward::kDx].dtype, [&]<class T>(T) {
    return with_activation(op.activation, [&](auto activation) {
      return plan_backward<activation(), T>(std::move(specs));
    });
  });
}

}  // namespace trireme::ops::cuda
