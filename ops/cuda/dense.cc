// Fully connected layers on cuBLASLt: everything row-major.
#include "ops/dense.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ops/cuda/bias.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/kernel_op.h"
#include "ops/cuda/plans.h"
#include "ops/settle.h"

namespace trireme::cuda {

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
  AlgorithmPtr algorithm;
  std::optional<BiasActivation> rest;
  const bool fits = is_absent(bias) || bias.dtype == y.dtype;
  if (fits && (op.activation == Activation::kNone || op.activation == Activation::kRelu)) {
    MatrixProduct whole = plain;
    whole.bias = !is_absent(bias);
    whole.relu = op.activation == Activation::kRelu;
    algorithm = try_to(find_product, *context, whole);
  }
  if (!algorithm) {
    algorithm = find_product(*context, plain);
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
  return kernel_op(
      std::move(specs),
      [algorithm](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kDy], args[Op::kWeight], args[Op::kDx], kNoTensor},
                       scratch);
      },
      algorithm->workspace_bytes());
}

Plan plan(const DenseBackwardWeights&, const ContextPtr& context, Specs given) {
  using Op = DenseBackwardWeights;
  std::vector<TensorSpec> specs = in_row_major(given);
  const TensorSpec &x = specs[Op::kX], &dy = specs[Op::kDy], &dbias = specs[Op::kDbias];
  const TensorSpec& dweight = specs[Op::kDweight];
  const AlgorithmPtr algorithm = find_product(*context, {.rows = dweight.shape[0],
                                                         .columns = dweight.shape[1],
                                                         .inner = x.shape[0],
                                                         .a_transposed = true,
                                                         .in = common_dtype(x, dy),
                                                         .out = dweight.dtype,
                                                         .tf32 = context->options.tf32});
  std::optional<BiasGradient> bias;
  if (!is_absent(dbias)) bias.emplace(dy, dbias, context->device);
  const size_t scratch_bytes =
      std::max(algorithm->workspace_bytes(), bias ? bias->scratch_bytes() : 0);
  return kernel_op(
      std::move(specs),
      [algorithm, bias](Stream& stream, Args args, void* scratch) {
        algorithm->run(stream,
                       std::array{args[Op::kDy], args[Op::kX], args[Op::kDweight], kNoTensor},
                       scratch);
        if (bias) bias->encode(stream, args[Op::kDy], args[Op::kDbias], scratch);
      },
      scratch_bytes);
}

}  // namespace trireme::cuda
