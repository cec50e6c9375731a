// Recurrent layers. The inputs of all steps are multiplied at once. Each step is a matrix product
// of cuBLASLt and a kernel (recurrent_steps.h).
#include "ops/recurrent.h"

#include <algorithm>
#include <array>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/algorithm.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/recurrent_steps.h"
#include "ops/function_op.h"
#include "ops/recurrent_products.h"

namespace trireme::ops::cuda {
namespace {

template <class Op>
StepSizes sizes_of(const Op& op, const TensorSpec& y) {
  bool reverse = false;
  if constexpr (requires { op.reverse; }) reverse = op.reverse;
  return {.samples = y.shape[0],
          .length = y.shape[1],
          .hidden = y.shape[2],
          .lstm = op.cell == RecurrentCell::kLstm,
          .reverse = reverse,
          .dtype = y.dtype,
          .document_end = op.document_end};
}

// Divides scratch memory into aligned parts.
class ScratchParts {
 public:
  size_t add(size_t bytes) {
    const size_t offset = total_;
    total_ += device_aligned(bytes);
    return offset;
  }
  // Adds memory for [rows, columns].
  size_t add(int64_t rows, int64_t columns, DType dtype) {
    return add(static_cast<size_t>(rows * columns) * size_of(dtype));
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};
template <class T>
T* part(void* scratch, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + offset);
}

template <class Op>
Plan plan_forward_steps(const Op& op, const ContextPtr& context, std::vector<TensorSpec> specs,
                        int64_t positions) {
  const StepSizes n = sizes_of(op, specs[Op::kY]);
  auto input = plan_input_product(
      op, specs, [&](const auto& other, Specs of_other) { return plan(other, context, of_other); });
  const AlgorithmPtr product = find_product(*context, {.rows = n.samples,
                                                       .columns = n.gates(),
                                                       .inner = n.hidden,
                                                       .b_transposed = true,
                                                       .in = n.dtype,
                                                       .out = DType::kF32,
                                                       .tf32 = context->options.tf32});
  ScratchParts parts;
  const size_t a_at = parts.add(n.rows(), n.gates(), DType::kF32);
  const size_t r_at = parts.add(n.samples, n.gates(), DType::kF32);
  const size_t h_at = parts.add(n.samples, n.hidden, n.dtype);
  const size_t state_at = parts.add(n.samples, n.hidden, DType::kF32);
  const size_t rest_at = parts.add(std::max(input->scratch_bytes(), product->workspace_bytes()));
  auto work = [=, input = std::move(input)](Stream& stream, Args args, void* scratch) {
    const StepStates states{part<void>(scratch, h_at), part<float>(scratch, state_at)};
    void *const a = part<void>(scratch, a_at), *const r = part<void>(scratch, r_at);
    void* const rest = part<void>(scratch, rest_at);
    CachedStates cached{};
    const float* initial = nullptr;
    float* last = nullptr;
    void* workspace = nullptr;
    if constexpr (requires { Op::kCache; }) {
      cached = {pointer<int32_t>(args, Op::kStarts), pointer<float>(args, Op::kCache), positions};
    } else {
      initial = pointer<float>(args, Op::kInitial);
      last = pointer<float>(args, Op::kFinal);
      workspace = args[Op::kWorkspace];
    }
    input->encode(stream,
                  std::array{args[Op::kX], args[Op::kWeightIh], args[Op::kBiasIh], a, kNoTensor},
                  rest);
    begin_steps(stream, n, initial, cached, states);
    const ForwardStep step_args{.ends = {pointer<int32_t>(args, Op::kTokens)},
                                .a = static_cast<float*>(a),
                                .r = static_cast<float*>(r),
                                .bias = args[Op::kBiasHh],
                                .y = args[Op::kY],
                                .workspace = workspace};
    for (int64_t step = 0; step < n.length; ++step) {
      product->run(stream, std::array{states.h, args[Op::kWeightHh], r, kNoTensor}, rest);
      forward_step(stream, n, step, step_args, cached, states);
    }
    if (last) write_final_states(stream, n, states, last);
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

}  // namespace

Plan plan(const RecurrentForward& op, const ContextPtr& context, Specs given) {
  using Op = RecurrentForward;
  std::vector<TensorSpec> specs = in_row_major(given);
  if (!is_absent(given[Op::kWorkspace])) {
    const size_t bytes = sizes_of(op, specs[Op::kY]).workspace_bytes();
    specs[Op::kWorkspace] = {DType::kU8, {static_cast<int64_t>(bytes)}, Layout::row_major()};
  }
  return plan_forward_steps(op, context, std::move(specs), /*positions=*/0);
}

Plan plan(const RecurrentBackward& op, const ContextPtr& context, Specs given) {
  using Op = RecurrentBackward;
  std::vector<TensorSpec> specs = in_row_major(given);
  const StepSizes n = sizes_of(op, specs[Op::kY]);
  RecurrentGradients gradients(
      op, specs, [&](const auto& other, Specs of_other) { return plan(other, context, of_other); });
  const AlgorithmPtr product = find_product(*context, {.rows = n.samples,
                                                       .columns = n.hidden,
                                                       .inner = n.gates(),
                                                       .in = n.dtype,
                                                       .out = DType::kF32,
                                                       .tf32 = context->options.tf32,
                                                       .accumulate = !n.lstm});
  ScratchParts parts;
  const size_t da_at = parts.add(n.rows(), n.gates(), n.dtype);
  const size_t dr_at = n.lstm ? da_at : parts.add(n.rows(), n.gates(), n.dtype);
  const size_t before_at = parts.add(n.rows(), n.hidden, n.dtype);
  const size_t next_at = parts.add(n.samples, n.gates(), n.dtype);
  const size_t dh_at = parts.add(n.samples, n.hidden, DType::kF32);
  const size_t dcell_at = parts.add(n.samples, n.hidden, DType::kF32);
  const size_t rest_at = parts.add(std::max(gradients.scratch_bytes(), product->workspace_bytes()));
  auto work = [=, gradients = std::move(gradients)](Stream& stream, Args args, void* scratch) {
    const BackwardStep step_args{.ends = {pointer<int32_t>(args, Op::kTokens)},
                                 .initial = pointer<float>(args, Op::kInitial),
                                 .y = args[Op::kY],
                                 .workspace = args[Op::kWorkspace],
                                 .dy = args[Op::kDy],
                                 .da = part<void>(scratch, da_at),
                                 .dr = part<void>(scratch, dr_at),
                                 .before = part<void>(scratch, before_at),
                                 .next = part<void>(scratch, next_at),
                                 .dh = part<float>(scratch, dh_at),
                                 .dcell = part<float>(scratch, dcell_at)};
    void *const rest = part<void>(scratch, rest_at), *const dh = step_args.dh;
    for (int64_t step = n.length - 1; step >= 0; --step) {
      backward_step(stream, n, step, step_args);
      if (step == 0) break;
      product->run(stream, std::array{step_args.next, args[Op::kWeightHh], dh, kNoTensor}, rest);
    }
    gradients.encode(stream, args, {step_args.da, step_args.dr, step_args.before}, rest);
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

Plan plan(const CachedRecurrent& op, const ContextPtr& context, Specs given) {
  return plan_forward_steps(op, context, in_row_major(given),
                            given[CachedRecurrent::kCache].shape[1]);
}

}  // namespace trireme::ops::cuda
