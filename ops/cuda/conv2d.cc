// Convolutions with cuDNN. All tensors are channels-last, including weights.
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
#include "ops/cuda/padded_convolution.h"
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

// Computes a weight gradient in the low-precision dtype of x and dy in the workspace, then casts
// it.
class WithCast final : public Algorithm {
 public:
  WithCast(AlgorithmPtr low_precision, std::shared_ptr<const OpPlan> cast,
           size_t low_precision_bytes)
      : low_precision_(std::move(low_precision)),
        cast_(std::move(cast)),
        low_precision_bytes_(device_aligned(low_precision_bytes)) {}

  size_t workspace_bytes() const override {
    return low_precision_bytes_ +
           std::max(low_precision_->workspace_bytes(), cast_->scratch_bytes());
  }

  void run(Stream& stream, Args args, void* workspace) const override {
    const auto [x, dweight, dy] = std::array{args[0], args[1], args[2]};
    void* const rest = static_cast<std::byte*>(workspace) + low_precision_bytes_;
    low_precision_->run(stream, std::array{x, workspace, dy, kNoTensor}, rest);
    cast_->encode(stream, std::array{workspace, dweight}, rest);
  }

 private:
  AlgorithmPtr low_precision_;
  std::shared_ptr<const OpPlan> cast_;
  size_t low_precision_bytes_;
};

// Few engines write f32 from 16-bit tensors, and not all of those are fast, so computing in low
// precision with a cast may be faster.
AlgorithmPtr find_weight_gradient(const Convolution& wanted, const TensorSpec& dweight,
                                  const ContextPtr& context) {
  if (wanted.in == wanted.out) return find_convolution_or_padded(*context, wanted);
  const auto direct = [&] { return find_or_null(find_convolution_or_padded, *context, wanted); };
  const auto with_cast = [&]() -> AlgorithmPtr {
    Convolution low_precision = wanted;
    low_precision.out = wanted.in;
    AlgorithmPtr algorithm = find_or_null(find_convolution_or_padded, *context, low_precision);
    if (!algorithm) return nullptr;
    const std::array from_to{TensorSpec{low_precision.out, dweight.shape, dweight.layout}, dweight};
    return std::make_shared<WithCast>(std::move(algorithm), plan(Reorder{}, context, from_to),
                                      from_to[0].bytes());
  };
  return context->libraries->engines.choose(
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
  return plan_forward(op, *context, std::move(specs), find_convolution_or_padded, plain, fused);
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
