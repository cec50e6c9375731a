// Fully connected layers with oneDNN. The weight is row-major in all three passes: blocked weights
// bring no measurable gain, and the optimizer, checkpoints and the other passes would have to
// convert them.
#include "ops/dense.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/activation.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/in_f32.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/product.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

using dnnl::memory;
using Bindings = std::vector<PrimitivePlan::Binding>;

// Returns the descriptor of the bias; an empty one if it is absent.
memory::desc bias_desc(const TensorSpec& bias) {
  return is_absent(bias) ? memory::desc() : to_desc(bias);
}

dnnl::inner_product_forward::primitive_desc inner_product(
    const EnginePtr& engine, const memory::desc& x, const memory::desc& weight,
    const memory::desc& bias, const memory::desc& y, const dnnl::primitive_attr& attr) {
  return {dnnl::inner_product_forward::desc(dnnl::prop_kind::forward_training, x, weight, bias, y),
          attr, engine->engine};
}

// From this number of rows on, oneDNN's matrix product is faster than its inner product with
// row-major weights.
constexpr int64_t kRowsForMatmul = 8;

// Writes the product to the tensor at the position `y`.
Plan plan_matmul(const EnginePtr& engine, std::vector<TensorSpec> specs,
                 const dnnl::primitive_attr& attr, int y) {
  using Op = DenseForward;
  const TensorSpec& bias = specs[Op::kBias];
  const int64_t in = specs[Op::kWeight].shape[1];
  const int64_t out = specs[Op::kWeight].shape[0];
  const memory::desc weight({in, out}, to_dnnl(specs[Op::kWeight].dtype), memory::dims{1, in});
  const memory::desc bias_row = is_absent(bias) ? memory::desc() : to_desc(bias, {1, out});
  const dnnl::matmul::primitive_desc desc(
      dnnl::matmul::desc(to_desc(specs[Op::kX]), weight, bias_row, to_desc(specs[Op::kY])), attr,
      engine->engine);
  Bindings bindings{{DNNL_ARG_SRC, Op::kX, desc.src_desc()},
                    {DNNL_ARG_WEIGHTS, Op::kWeight, desc.weights_desc()},
                    {DNNL_ARG_DST, y, desc.dst_desc()}};
  if (!is_absent(bias)) bindings.push_back({DNNL_ARG_BIAS, Op::kBias, bias_row});
  return std::make_unique<PrimitivePlan>(engine, std::move(specs), dnnl::matmul(desc),
                                         std::move(bindings), desc.scratchpad_desc());
}

// Likewise, for few rows.
Plan plan_inner_product(const EnginePtr& engine, std::vector<TensorSpec> specs,
                        const dnnl::primitive_attr& attr, int y) {
  using Op = DenseForward;
  const auto desc = inner_product(engine, to_desc(specs[Op::kX]), to_desc(specs[Op::kWeight]),
                                  bias_desc(specs[Op::kBias]), to_desc(specs[Op::kY]), attr);
  Bindings bindings{{DNNL_ARG_SRC, Op::kX, desc.src_desc()},
                    {DNNL_ARG_WEIGHTS, Op::kWeight, desc.weights_desc()},
                    {DNNL_ARG_DST, y, desc.dst_desc()}};
  if (!is_absent(specs[Op::kBias])) {
    bindings.push_back({DNNL_ARG_BIAS, Op::kBias, desc.bias_desc()});
  }
  return std::make_unique<PrimitivePlan>(engine, std::move(specs),
                                         dnnl::inner_product_forward(desc), std::move(bindings),
                                         desc.scratchpad_desc());
}

// Likewise, for few rows of bf16 on CPUs without instructions to multiply them.
Plan plan_few_rows(std::vector<TensorSpec> specs, int y) {
  using Op = DenseForward;
  const FewRows sizes{specs[Op::kX].shape[0], specs[Op::kX].shape[1], specs[Op::kWeight].shape[0]};
  return host_op(std::move(specs), [sizes, y](Args args, void*) {
    multiply_few_rows(sizes, pointer<const BFloat16>(args, Op::kX),
                      pointer<const BFloat16>(args, Op::kWeight),
                      pointer<const BFloat16>(args, Op::kBias), pointer<BFloat16>(args, y));
  });
}

// Runs two plans with the same specs, one after the other.
Plan in_sequence(Plan first, Plan second) {
  std::vector<TensorSpec> specs(first->specs().begin(), first->specs().end());
  const size_t scratch_bytes = std::max(first->scratch_bytes(), second->scratch_bytes());
  return function_op(
      std::move(specs),
      [first = std::move(first), second = std::move(second)](Stream& stream, Args args,
                                                             void* scratch) {
        first->encode(stream, args, scratch);
        second->encode(stream, args, scratch);
      },
      scratch_bytes);
}

// Writes the product, with an activation if there is one, to the tensor at the position `y`.
Plan plan_product(const EnginePtr& engine, std::vector<TensorSpec> specs, Activation activation,
                  int y) {
  using Op = DenseForward;
  if (specs[Op::kX].shape[0] >= kRowsForMatmul) {
    return plan_matmul(engine, std::move(specs), with_activation(activation), y);
  }
  const bool all_bf16 = std::ranges::all_of(
      std::array<int, 4>{Op::kX, Op::kWeight, Op::kBias, y},
      [&](int arg) { return is_absent(specs[arg]) || specs[arg].dtype == DType::kBF16; });
  if (!engine->bf16_in_f32 || !all_bf16) {
    return plan_inner_product(engine, std::move(specs), with_activation(activation), y);
  }
  Plan product = plan_few_rows(specs, y);
  if (activation == Activation::kNone) return product;
  return in_sequence(std::move(product),
                     plan_activation(engine, activation, std::move(specs), y, y));
}

// The gradient of the weight as a matrix product, which can add to it.
Plan plan_weights_matmul(const EnginePtr& engine, std::vector<TensorSpec> specs, bool accumulate) {
  using Op = DenseBackwardWeights;
  const int64_t rows = specs[Op::kX].shape[0];
  const int64_t in = specs[Op::kDweight].shape[1], out = specs[Op::kDweight].shape[0];
  const Matrix x{to_dnnl(specs[Op::kX].dtype), in, 1}, dy{to_dnnl(specs[Op::kDy].dtype), out, 1};
  Product product(engine, out, in, rows, dy.transposed(), x,
                  {to_dnnl(specs[Op::kDweight].dtype), in, 1}, accumulate);
  const size_t scratch_bytes = product.scratch_bytes();
  auto work = [product = std::move(product)](Args args, void* scratch) {
    product.run(args[Op::kDy], args[Op::kX], args[Op::kDweight], scratch);
  };
  return host_op(std::move(specs), std::move(work), scratch_bytes);
}

// The gradient of the weight as an inner product of oneDNN, which overwrites it.
Plan plan_weights_inner_product(const EnginePtr& engine, std::vector<TensorSpec> specs) {
  using Op = DenseBackwardWeights;
  const memory::desc x = to_desc(specs[Op::kX]);
  const memory::desc dweight = to_desc(specs[Op::kDweight]);
  const memory::desc dy = to_desc(specs[Op::kDy]);
  // In the forward pass the weight has the dtype of the activations.
  TensorSpec weight = specs[Op::kDweight];
  weight.dtype = specs[Op::kX].dtype;
  const dnnl::inner_product_backward_weights::primitive_desc desc(
      {x, dweight, {}, dy}, scratch_by_caller(), engine->engine,
      inner_product(engine, x, to_desc(weight), {}, dy, {}));
  return std::make_unique<PrimitivePlan>(
      engine, std::move(specs), dnnl::inner_product_backward_weights(desc),
      Bindings{{DNNL_ARG_SRC, Op::kX, desc.src_desc()},
               {DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
               {DNNL_ARG_DIFF_WEIGHTS, Op::kDweight, desc.diff_weights_desc()}},
      desc.scratchpad_desc());
}

// Returns whether oneDNN's matrix product takes less time than its inner product, for which rows of
// dy that are a multiple of 2 KiB apart conflict in the first cache: 11.2 instead of 16.0 ms for
// 2048 rows and a weight of [1024, 256] (Cascade Lake, f32). With more inputs the inner product
// takes less in spite of that.
bool is_faster_as_matmul(const TensorSpec& dy, const TensorSpec& dweight) {
  return dy.dtype == DType::kF32 && dy.shape[1] % 512 == 0 && dweight.shape[1] <= 512;
}

// Sums the rows of dy into dbias, or adds them to it.
template <class T>
void sum_rows(const T* dy, int64_t rows, int64_t width, float* dbias, bool accumulate) {
  parallel_for(width, [&](int64_t begin, int64_t end) {
    if (!accumulate) std::fill(dbias + begin, dbias + end, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {
      accumulate_row(dy + r * width + begin, dbias + begin, end - begin);
    }
  });
}

// Runs `weights`, then computes the gradient of the bias, for which oneDNN takes up to a third of
// the time of the product.
Plan with_bias_gradient(Plan weights, bool accumulate) {
  using Op = DenseBackwardWeights;
  std::vector<TensorSpec> specs(weights->specs().begin(), weights->specs().end());
  return with_element(specs[Op::kDy].dtype, [&]<class T>(T) {
    const Shape& shape = specs[Op::kDy].shape;
    const size_t scratch_bytes = weights->scratch_bytes();
    return function_op(
        std::move(specs),
        [weights = std::move(weights), rows = shape[0], width = shape[1], accumulate](
            Stream& stream, Args args, void* scratch) {
          weights->encode(stream, args, scratch);
          const T* const dy = pointer<const T>(args, Op::kDy);
          auto* const dbias = pointer<float>(args, Op::kDbias);
          stream.run(Task([=, rows = rows, width = width, accumulate = accumulate] {
            sum_rows(dy, rows, width, dbias, accumulate);
          }));
        },
        scratch_bytes);
  });
}

// For fewer rows, converting the weight takes longer than the product.
bool has_rows_for_f32(const Engine& engine, Specs specs, int rows) {
  constexpr int64_t kRowsForConversion = 16;
  return specs[rows].shape[0] >= kRowsForConversion && runs_in_f32(engine, specs);
}

}  // namespace

Plan plan(const DenseForward& op, const EnginePtr& engine, Specs given) {
  using Op = DenseForward;
  if (has_rows_for_f32(*engine, given, Op::kX)) return plan_in_f32(op, engine, given);
  std::vector<TensorSpec> specs = in_row_major(given);
  if (is_absent(specs[Op::kZ])) {
    return plan_product(engine, std::move(specs), op.activation, Op::kY);
  }
  Plan product = plan_product(engine, specs, Activation::kNone, Op::kZ);
  return in_sequence(std::move(product),
                     plan_activation(engine, op.activation, std::move(specs), Op::kZ, Op::kY));
}

Plan plan(const DenseBackwardData& op, const EnginePtr& engine, Specs given) {
  using Op = DenseBackwardData;
  if (has_rows_for_f32(*engine, given, Op::kDy)) return plan_in_f32(op, engine, given);
  std::vector<TensorSpec> specs = in_row_major(given);
  const memory::desc dx = to_desc(specs[Op::kDx]);
  const memory::desc weight = to_desc(specs[Op::kWeight]);
  const memory::desc dy = to_desc(specs[Op::kDy]);
  const dnnl::inner_product_backward_data::primitive_desc desc(
      {dx, weight, dy}, scratch_by_caller(), engine->engine,
      inner_product(engine, dx, weight, {}, dy, {}));
  Plan product =
      std::make_unique<PrimitivePlan>(engine, specs, dnnl::inner_product_backward_data(desc),
                                      Bindings{{DNNL_ARG_DIFF_DST, Op::kDy, desc.diff_dst_desc()},
                                               {DNNL_ARG_WEIGHTS, Op::kWeight, desc.weights_desc()},
                                               {DNNL_ARG_DIFF_SRC, Op::kDx, desc.diff_src_desc()}},
                                      desc.scratchpad_desc());
  if (op.activation == Activation::kNone) return product;
  return in_sequence(std::move(product),
                     plan_activation_gradient(engine, op.activation, std::move(specs), Op::kSaved,
                                              Op::kDx, Op::kDx));
}

Plan plan(const DenseBackwardWeights& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  std::vector<TensorSpec> specs = in_row_major(given);
  const bool has_bias = !is_absent(specs[DenseBackwardWeights::kDbias]);
  const bool matmul = op.accumulate || is_faster_as_matmul(specs[DenseBackwardWeights::kDy],
                                                           specs[DenseBackwardWeights::kDweight]);
  Plan weights = matmul ? plan_weights_matmul(engine, std::move(specs), op.accumulate)
                        : plan_weights_inner_product(engine, std::move(specs));
  return has_bias ? with_bias_gradient(std::move(weights), op.accumulate) : std::move(weights);
}

}  // namespace trireme::ops::cpu
