// Convolutions on cuDNN: everything channels-last, weights too.
#include "ops/conv2d.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "ops/cuda/bias.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/kernel_op.h"
#include "ops/cuda/plans.h"

namespace trireme::cuda {
namespace {

std::vector<TensorSpec> in_channels_last(Specs given) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  for (TensorSpec& spec : specs) {
    if (is_absent(spec)) continue;
    spec.layout = spec.shape.rank() == 4 ? Layout::channels_last() : Layout::row_major();
  }
  return specs;
}

// Where scratch memory is divided.
constexpr size_t kAlignment = 256;

// Few engines write f32 from 16-bit tensors. Where none does, dweight first comes to lie in scratch
// memory, as narrow as they are.
struct WeightGradient {
  AlgorithmPtr algorithm;
  std::shared_ptr<const OpPlan> widen = {};  // null: not needed
  size_t narrow_bytes = 0;

  size_t rest_bytes() const {
    return std::max(algorithm->workspace_bytes(), widen ? widen->scratch_bytes() : 0);
  }
  void encode(Stream& stream, Args args, void* narrow, void* rest) const {
    using Op = Conv2dBackwardWeights;
    void* const written = widen ? narrow : args[Op::kDweight];
    algorithm->run(stream, std::array{args[Op::kX], written, args[Op::kDy], kNoTensor}, rest);
    if (widen) widen->encode(stream, std::array{narrow, args[Op::kDweight]}, rest);
  }
};

WeightGradient find_weight_gradient(Convolution wanted, const TensorSpec& dweight,
                                    const ContextPtr& context) {
  if (auto direct = try_to(find_convolution, *context, wanted)) return {.algorithm = direct};
  wanted.out = wanted.in;
  const std::array from_to{TensorSpec{wanted.out, dweight.shape, dweight.layout}, dweight};
  return {.algorithm = find_convolution(*context, wanted),
          .widen = plan(Reorder{}, context, from_to),
          .narrow_bytes = (from_to[0].bytes() + kAlignment - 1) / kAlignment * kAlignment};
}

}  // namespace

Plan plan(const Conv2dForward& op, const ContextPtr& context, Specs given) {
  using Op = Conv2dForward;
  std::vector<TensorSpec> specs = in_channels_last(given);
  const TensorSpec &x = specs[Op::kX], &weight = specs[Op::kWeight], &bias = specs[Op::kBias],
                   &y = specs[Op::kY];
  const Convolution plain{.pass = ConvolutionPass::kForward,
                          .geometry = op.geometry,
                          .x = x.shape,
                          .weight = weight.shape,
                          .y = y.shape,
                          .in = common_dtype(x, weight),
                          .out = y.dtype,
                          .tf32 = context->options.tf32};
  AlgorithmPtr algorithm;
  std::optional<BiasActivation> rest;
  if (op.activation == Activation::kNone || op.activation == Activation::kRelu) {
    Convolution whole = plain;
    whole.relu = op.activation == Activation::kRelu;
    if (!is_absent(bias)) whole.bias = bias.dtype;
    algorithm = try_to(find_convolution, *context, whole);
  }
  if (!algorithm) {
    algorithm = find_convolution(*context, plain);
    rest.emplace(y, bias, op.activation);
  }
  return kernel_op(
      std::move(specs),
      [algorithm, rest](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kX], args[Op::kWeight], args[Op::kY], args[Op::kBias]},
                       scratch);
        if (rest) rest->encode(stream, args[Op::kY], args[Op::kBias]);
      },
      algorithm->workspace_bytes());
}

Plan plan(const Conv2dBackwardData& op, const ContextPtr& context, Specs given) {
  using Op = Conv2dBackwardData;
  std::vector<TensorSpec> specs = in_channels_last(given);
  const TensorSpec &dy = specs[Op::kDy], &weight = specs[Op::kWeight], &dx = specs[Op::kDx];
  const AlgorithmPtr algorithm = find_convolution(*context, {.pass = ConvolutionPass::kBackwardData,
                                                             .geometry = op.geometry,
                                                             .x = dx.shape,
                                                             .weight = weight.shape,
                                                             .y = dy.shape,
                                                             .in = common_dtype(dy, weight),
                                                             .out = dx.dtype,
                                                             .tf32 = context->options.tf32});
  return kernel_op(
      std::move(specs),
      [algorithm](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kDx], args[Op::kWeight], args[Op::kDy], kNoTensor},
                       scratch);
      },
      algorithm->workspace_bytes());
}

Plan plan(const Conv2dBackwardWeights& op, const ContextPtr& context, Specs given) {
  using Op = Conv2dBackwardWeights;
  std::vector<TensorSpec> specs = in_channels_last(given);
  const TensorSpec &x = specs[Op::kX], &dy = specs[Op::kDy], &dweight = specs[Op::kDweight],
                   &dbias = specs[Op::kDbias];
  const Convolution wanted{.pass = ConvolutionPass::kBackwardWeights,
                           .geometry = op.geometry,
                           .x = x.shape,
                           .weight = dweight.shape,
                           .y = dy.shape,
                           .in = common_dtype(x, dy),
                           .out = dweight.dtype,
                           .tf32 = context->options.tf32};
  const WeightGradient gradient = find_weight_gradient(wanted, dweight, context);
  std::optional<BiasGradient> bias;
  if (!is_absent(dbias)) bias.emplace(dy, dbias, context->device);
  const size_t rest_bytes = std::max(gradient.rest_bytes(), bias ? bias->scratch_bytes() : 0);
  return kernel_op(
      std::move(specs),
      [gradient, bias](Stream& stream, Args args, void* scratch) {
        void* const rest = static_cast<std::byte*>(scratch) + gradient.narrow_bytes;
        gradient.encode(stream, args, scratch, rest);
        if (bias) bias->encode(stream, args[Op::kDy], args[Op::kDbias], rest);
      },
      gradient.narrow_bytes + rest_bytes);
}

}  // namespace trireme::cuda
