// Plans of convolutions and dense layers: an algorithm of a library, followed by Trireme's kernels
// for what the algorithm does not support.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "ops/cuda/algorithm.h"
#include "ops/cuda/bias.h"
#include "ops/cuda/context.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {

// Returns the plan that computes y from x, weight and bias. find(context, product) returns the
// algorithm. It is called for `fused`, which includes the bias and the activation, if given, and
// then, if that is not supported, for `plain`, which includes neither.
template <class Op, class Find, class Product>
std::unique_ptr<OpPlan> plan_forward(const Op& op, const Context& context,
                                     std::vector<TensorSpec> specs, Find find, const Product& plain,
                                     const std::optional<Product>& fused) {
  AlgorithmPtr algorithm = fused ? find_or_null(find, context, *fused) : nullptr;
  std::optional<BiasActivation> rest;
  if (!algorithm) {
    algorithm = find(context, plain);
    rest.emplace(specs[Op::kY], specs[Op::kBias], op.activation);
  }
  return function_op(
      std::move(specs),
      [algorithm, rest](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kX], args[Op::kWeight], args[Op::kY], args[Op::kBias]},
                       scratch);
        if (rest) rest->encode(stream, args[Op::kY], args[Op::kBias]);
      },
      algorithm->workspace_bytes());
}

// Returns the plan that computes dweight with the algorithm, whose arguments are the op's args in
// this order, and dbias if it is present. With `accumulate`, dbias is added to.
template <class Op>
std::unique_ptr<OpPlan> plan_weight_gradient(const Op&, const Context& context,
                                             std::vector<TensorSpec> specs,
                                             const AlgorithmPtr& algorithm,
                                             std::array<typename Op::Arg, 3> order,
                                             bool accumulate = false) {
  std::optional<BiasGradient> bias;
  if (!is_absent(specs[Op::kDbias])) {
    bias.emplace(specs[Op::kDy], specs[Op::kDbias], accumulate, context.device);
  }
  const size_t scratch_bytes =
      std::max(algorithm->workspace_bytes(), bias ? bias->scratch_bytes() : 0);
  return function_op(
      std::move(specs),
      [algorithm, bias, order](Stream& stream, Args args, void* scratch) {
        algorithm->run(
            stream, std::array{args[order[0]], args[order[1]], args[order[2]], kNoTensor}, scratch);
        if (bias) bias->encode(stream, args[Op::kDy], args[Op::kDbias], scratch);
      },
      scratch_bytes);
}

}  // namespace trireme::ops::cuda
