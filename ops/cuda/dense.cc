// Fully connected layers with cuBLASLt. All tensors are row-major.
#include "ops/dense.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ops/choose_layouts.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/product_op.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {

Plan plan(const DenseForward& op, const ContextPtr& context, Specs given) {
  using Op = DenseForward;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &x = specs[Op::kX], &weight = specs[Op::kWeight], &bias = specs[Op::kBias],
                   &y = specs[Op::kY];
  const MatrixProduct plain{.rows = x.shape[0],
                            .columns = weight.shape[0],
                            .inner = weight.shape[1],
                            .b_transposed = true,
                            .in = common_dtype(x, weight),
                            .out = y.dtype,
                            .tf32 = context->options.tf32};
  std::optional<MatrixProduct> fused;
  const bool fits = is_absent(bias) || bias.dtype == y.dtype;
  if (fits && (op.activation == Activation::kNone || op.activation == Activation::kRelu)) {
    fused = plain;
    fused->bias = !is_absent(bias);
    fused->relu = op.activation == Activation::kRelu;
  }
  return plan_forward(op, *context, std::move(specs), find_product, plain, fused);
}

Plan plan(const DenseBackwardData&, const ContextPtr& context, Specs given) {
  using Op = DenseBackwardData;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &dy = specs[Op::kDy], &weight = specs[Op::kWeight];
  const AlgorithmPtr algorithm = find_product(*context, {.rows = dy.shape[0],
                                                         .columns = weight.shape[1],
                                                         .inner = weight.shape[0],
                                                         .in = common_dtype(dy, weight),
                                                         .out = specs[Op::kDx].dtype,
                                                         .tf32 = context->options.tf32});
  return function_op(
      std::move(specs),
      [algorithm](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kDy], args[Op::kWeight], args[Op::kDx], kNoTensor},
                       scratch);
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
