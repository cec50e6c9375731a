// The products of recurrent layers over all rows at once, made of a backend's plans of dense
// layers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

#include "ops/dense.h"
#include "ops/op.h"
#include "ops/recurrent.h"

namespace trireme::ops {

// Returns the spec of [B, T, F] as [B * T, F], which is row-major.
inline TensorSpec as_rows(const TensorSpec& spec) {
  const Shape& shape = spec.shape;
  return {spec.dtype, {shape[0] * shape[1], shape[2]}, Layout::row_major()};
}

// Returns the plan of a = weight_ih x + bias_ih, f32 [B * T, G * H]. `Op` is RecurrentForward or
// CachedRecurrent; make(op, specs) returns the backend's plan of another op.
template <class Op, class Make>
std::unique_ptr<OpPlan> plan_input_product(const Op&, Specs specs, const Make& make) {
  const TensorSpec x = as_rows(specs[Op::kX]);
  const TensorSpec &weight = specs[Op::kWeightIh], &bias = specs[Op::kBiasIh];
  const TensorSpec a{DType::kF32, {x.shape[0], weight.shape[0]}, Layout::row_major()};
  return make(DenseForward{}, std::array{x, weight, bias, a, absent()});
}

// The gradients of the parameters and of x, from those of the gates.
class RecurrentGradients {
 public:
  // The gradients of a and of r, in the dtype of x, [B * T, G * H], and h before each step,
  // [B * T, H].
  struct Steps {
    void *da, *dr, *before;
  };

  template <class Make>
  RecurrentGradients(const RecurrentBackward&, Specs specs, const Make& make) {
    const TensorSpec x = as_rows(specs[Op::kX]), before = as_rows(specs[Op::kY]);
    const TensorSpec &weight = specs[Op::kWeightIh], &dweight = specs[Op::kDweightIh];
    const TensorSpec gates{x.dtype, {x.shape[0], weight.shape[0]}, Layout::row_major()};
    if (!is_absent(dweight)) {
      weight_ih_ = make(DenseBackwardWeights{}, std::array{x, gates, dweight, specs[Op::kDbiasIh]});
      weight_hh_ = make(DenseBackwardWeights{},
                        std::array{before, gates, specs[Op::kDweightHh], specs[Op::kDbiasHh]});
    }
    if (!is_absent(specs[Op::kDx])) {
      x_ = make(DenseBackwardData{}, std::array{gates, weight, as_rows(specs[Op::kDx]), absent()});
    }
  }

  size_t scratch_bytes() const {
    size_t bytes = 0;
    for (const auto* plan : {&weight_ih_, &weight_hh_, &x_}) {
      if (*plan) bytes = std::max(bytes, (*plan)->scratch_bytes());
    }
    return bytes;
  }

  // `args` are those of the op. On the CPU the stream must run inline, since the arguments of the
  // parts do not outlive this call.
  void encode(Stream& stream, Args args, const Steps& steps, void* scratch) const {
    void* const x = args[Op::kX];
    if (weight_ih_) {
      weight_ih_->encode(stream, std::array{x, steps.da, args[Op::kDweightIh], args[Op::kDbiasIh]},
                         scratch);
      weight_hh_->encode(
          stream, std::array{steps.before, steps.dr, args[Op::kDweightHh], args[Op::kDbiasHh]},
          scratch);
    }
    void* const none = nullptr;
    if (x_) {
      x_->encode(stream, std::array{steps.da, args[Op::kWeightIh], args[Op::kDx], none}, scratch);
    }
  }

 private:
  using Op = RecurrentBackward;
  std::unique_ptr<OpPlan> weight_ih_, weight_hh_, x_;  // null: not needed
};

}  // namespace trireme::ops
