// Fully connected layers with cuBLASLt. All tensors are row-major.
#include "ops/dense.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "ops/activation.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/bias.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/product_op.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {

namespace {

// Returns the epilogue that computes the activation, and stores its argument, or nullopt.
std::optional<ProductEpilogue> epilogue_of(Activation activation, bool stores) {
  switch (activation) {
    case Activation::kNone:
      return ProductEpilogue::kNone;
    case Activation::kRelu:
      return stores ? std::nullopt : std::optional(ProductEpilogue::kRelu);
    case Activation::kGeluTanh:
      return stores ? ProductEpilogue::kGeluStoring : ProductEpilogue::kGelu;
    default:
      return std::nullopt;
  }
}

// The steps of a forward pass, as many of them in the product as cuBLASLt supports. The product
// writes y, or z if it is wanted and the product does not compute the activation.
struct ForwardSteps {
  AlgorithmPtr product;
  bool to_z = false;
  std::optional<BiasActivation> bias;        // in place
  std::shared_ptr<const OpPlan> activation;  // from what the product writes to y

  size_t scratch_bytes() const { return product->workspace_bytes(); }
};

ForwardSteps forward_steps(const DenseForward& op, const ContextPtr& context,
                           std::span<const TensorSpec> specs, const MatrixProduct& plain) {
  using Op = DenseForward;
  const TensorSpec &bias = specs[Op::kBias], &y = specs[Op::kY];
  const bool stores = !is_absent(specs[Op::kZ]);
  const auto epilogue = epilogue_of(op.activation, stores);
  MatrixProduct fused = plain;
  fused.bias = !is_absent(bias);
  ForwardSteps steps;
  if (!fused.bias || bias.dtype == y.dtype) {
    if (epilogue) {
      fused.epilogue = *epilogue;
      steps.product = find_or_null(find_product, *context, fused);
      if (steps.product) return steps;
      fused.epilogue = ProductEpilogue::kNone;
    }
    if (stores || !derivative_uses_output(op.activation)) {
      steps.product = find_or_null(find_product, *context, fused);
    }
  }
  // A kernel adds the bias and applies activations that are not stored in one pass.
  const bool in_place = !stores && derivative_uses_output(op.activation);
  if (!steps.product) {
    steps.product = find_product(*context, plain);
    steps.bias.emplace(y, bias, in_place ? op.activation : Activation::kNone);
    if (in_place || op.activation == Activation::kNone) return steps;
  }
  steps.to_z = stores;
  steps.activation = plan(ActivationForward{op.activation}, context, std::array{y, y});
  return steps;
}

}  // namespace

Plan plan(const DenseForward& op, const ContextPtr& context, Specs given) {
  using Op = DenseForward;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &x = specs[Op::kX], &weight = specs[Op::kWeight];
  const MatrixProduct plain{.rows = x.shape[0],
                            .columns = weight.shape[0],
                            .inner = weight.shape[1],
                            .b_transposed = true,
                            .in = common_dtype(x, weight),
                            .out = specs[Op::kY].dtype,
                            .tf32 = context->options.tf32};
  const ForwardSteps steps = forward_steps(op, context, specs, plain);
  const size_t scratch_bytes = steps.scratch_bytes();
  return function_op(
      std::move(specs),
      [steps](Stream& stream, Args args, void* scratch) {
        void* const to = args[steps.to_z ? Op::kZ : Op::kY];
        steps.product->run(
            stream, std::array{args[Op::kX], args[Op::kWeight], to, args[Op::kBias], args[Op::kZ]},
            scratch);
        if (steps.bias) steps.bias->encode(stream, to, args[Op::kBias]);
        if (steps.activation) {
          steps.activation->encode(stream, std::array{to, args[Op::kY]}, nullptr);
        }
      },
      scratch_bytes);
}

Plan plan(const DenseBackwardData& op, const ContextPtr& context, Specs given) {
  using Op = DenseBackwardData;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &dy = specs[Op::kDy], &weight = specs[Op::kWeight], &dx = specs[Op::kDx];
  MatrixProduct product{.rows = dy.shape[0],
                        .columns = weight.shape[1],
                        .inner = weight.shape[0],
                        .in = common_dtype(dy, weight),
                        .out = dx.dtype,
                        .tf32 = context->options.tf32};
  AlgorithmPtr algorithm;
  if (op.activation == Activation::kGeluTanh) {
    product.epilogue = ProductEpilogue::kGeluGradient;
    algorithm = find_or_null(find_product, *context, product);
    product.epilogue = ProductEpilogue::kNone;
  }
  std::shared_ptr<const OpPlan> derivative;  // applied in place
  if (!algorithm) {
    algorithm = find_product(*context, product);
    if (op.activation != Activation::kNone) {
      derivative = plan(ActivationBackward{op.activation}, context, std::array{dx, dx, dx});
    }
  }
  return function_op(
      std::move(specs),
      [algorithm, derivative](Stream& stream, Args args, void* scratch) {
        void* const dx_memory = args[Op::kDx];
        algorithm->run(
            stream,
            std::array{args[Op::kDy], args[Op::kWeight], dx_memory, kNoTensor, args[Op::kSaved]},
            scratch);
        if (derivative) {
          derivative->encode(stream, std::array{args[Op::kSaved], dx_memory, dx_memory}, nullptr);
        }
      },
      algorithm->workspace_bytes());
}

Plan plan(const DenseBackwardWeights& op, const ContextPtr& context, Specs given) {
  using Op = DenseBackwardWeights;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &x = specs[Op::kX], &dy = specs[Op::kDy], &dweight = specs[Op::kDweight];
  const AlgorithmPtr algorithm = find_product(*context, {.rows = dweight.shape[0],
                                                         .columns = dweight.shape[1],
                                                         .inner = x.shape[0],
                                                         .a_transposed = true,
                                                         .in = common_dtype(x, dy),
                                                         .out = dweight.dtype,
                                                         .tf32 = context->options.tf32,
                                                         .accumulate = op.accumulate});
  return plan_weight_gradient(op, *context, std::move(specs), algorithm,
                              {Op::kDy, Op::kX, Op::kDweight}, op.accumulate);
}

}  // namespace trireme::ops::cuda
