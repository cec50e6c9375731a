// Convolutions on cuDNN: everything channels-last, weights too.
#include "ops/conv2d.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/libraries.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/product_op.h"

namespace trireme::ops::cuda {
namespace {

std::vector<TensorSpec> in_channels_last(Specs given) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  for (TensorSpec& spec : specs) {
    if (is_absent(spec)) continue;
    spec.layout = spec.shape.rank() == 4 ? Layout::channels_last() : Layout::row_major();
  }
  return specs;
}

// A weight gradient that is computed as narrow as x and dy, in the workspace, and then cast.
class WithCast final : public Algorithm {
 public:
  WithCast(AlgorithmPtr narrow, std::shared_ptr<const OpPlan> cast, size_t narrow_bytes)
      : narrow_(std::move(narrow)),
        cast_(std::move(cast)),
        narrow_bytes_(device_aligned(narrow_bytes)) {}

  size_t workspace_bytes() const override {
    return narrow_bytes_ + std::max(narrow_->workspace_bytes(), cast_->scratch_bytes());
  }

  void run(Stream& stream, Args args, void* workspace) const override {
    const auto [x, dweight, dy] = std::array{args[0], args[1], args[2]};
    void* const rest = static_cast<std::byte*>(workspace) + narrow_bytes_;
    narrow_->run(stream, std::array{x, workspace, dy, kNoTensor}, rest);
    cast_->encode(stream, std::array{workspace, dweight}, rest);
  }

 private:
  AlgorithmPtr narrow_;
  std::shared_ptr<const OpPlan> cast_;
  size_t narrow_bytes_;
};

// Few engines write f32 from 16-bit tensors, and not all of those are fast: a cast may pay.
AlgorithmPtr find_weight_gradient(const Convolution& wanted, const TensorSpec& dweight,
                                  const ContextPtr& context) {
  if (wanted.in == wanted.out) return find_convolution(*context, wanted);
  const auto direct = [&] { return try_to(find_convolution, *context, wanted); };
  const auto with_cast = [&]() -> AlgorithmPtr {
    Convolution narrow = wanted;
    narrow.out = wanted.in;
    AlgorithmPtr algorithm = try_to(find_convolution, *context, narrow);
    if (!algorithm) return nullptr;
    const std::array from_to{TensorSpec{narrow.out, dweight.shape, dweight.layout}, dweight};
    return std::make_shared<WithCast>(std::move(algorithm), plan(Reorder{}, context, from_to),
                                      from_to[0].bytes());
  };
  return context->libraries->convolutions.choose(
      key(wanted) + ", direct or with a cast", bytes(wanted), [&] {
        return std::vector<Candidate>{{"direct", direct}, {"with a cast", with_cast}};
      });
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
  std::optional<Convolution> fused;
  if (op.activation == Activation::kNone || op.activation == Activation::kRelu) {
    fused = plain;
    fused->relu = op.activation == Activation::kRelu;
    if (!is_absent(bias)) fused->bias = bias.dtype;
  }
  return plan_forward(op, *context, std::move(specs), find_convolution, plain, fused);
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
  return function_op(
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
  const TensorSpec &x = specs[Op::kX], &dy = specs[Op::kDy], &dweight = specs[Op::kDweight];
  const Convolution wanted{.pass = ConvolutionPass::kBackwardWeights,
                           .geometry = op.geometry,
                           .x = x.shape,
                           .weight = dweight.shape,
                           .y = dy.shape,
                           .in = common_dtype(x, dy),
                           .out = dweight.dtype,
                           .tf32 = context->options.tf32};
  const AlgorithmPtr algorithm = find_weight_gradient(wanted, dweight, context);
  return plan_weight_gradient(op, *context, std::move(specs), algorithm,
                              {Op::kX, Op::kDweight, Op::kDy});
}

}  // namespace trireme::ops::cuda
