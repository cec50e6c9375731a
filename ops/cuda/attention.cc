// Attention: cuDNN's fused engines where they support it (f16 and bf16 without first keys),
// otherwise Trireme's own kernels. Both store the same log-sum-exp, so the passes may differ.
#include "ops/attention.h"

#include <algorithm>
#include <array>

#include "ops/choose_layouts.h"
#include "ops/cuda/attention_kernels.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// The workspace of the deterministic gradients that several samples share.
constexpr int64_t kScoreGradientLimit = kWorkspaceLimit / 2;

// Returns how many samples to pass to cuDNN at a time: a divisor of all, as large as the gradients
// of their scores, which the deterministic algorithm stores in tiles of up to 128 x 128, permit.
int64_t samples_at_once(const FusedAttention& a) {
  if (a.pass != AttentionPass::kBackward) return a.samples;
  const int64_t padded = (a.length + 127) / 128 * 128;
  const int64_t bytes = a.shape.heads * padded * padded * static_cast<int64_t>(size_of(a.dtype));
  int64_t count = std::clamp<int64_t>(kScoreGradientLimit / bytes, 1, a.samples);
  while (a.samples % count != 0) --count;
  return count;
}

// An algorithm for some of the samples, and the bytes by which its arguments advance to the next.
struct SampleParts {
  AlgorithmPtr algorithm;
  std::vector<size_t> steps;
  int64_t count = 0;

  void run(Stream& stream, Args args, void* workspace) const {
    for (int64_t i = 0; i < count; ++i) {
      std::array<void*, FusedAttention::kArgs> part{};
      for (size_t a = 0; a < args.size(); ++a) {
        if (args[a]) part[a] = static_cast<std::byte*>(args[a]) + static_cast<size_t>(i) * steps[a];
      }
      algorithm->run(stream, part, workspace);
    }
  }
};

// Returns no algorithm if cuDNN does not support the attention.
SampleParts find_parts(const Context& context, FusedAttention attention) {
  const int64_t all = attention.samples;
  attention.samples = samples_at_once(attention);
  return {find_or_null(find_attention, context, attention), bytes(attention),
          all / attention.samples};
}

FusedAttention describe(AttentionPass pass, const AttentionShape& shape, const TensorSpec& qkv,
                        const TensorSpec& lengths) {
  return {.pass = pass,
          .shape = shape,
          .samples = qkv.shape[0],
          .length = qkv.shape[1],
          .dim = qkv.shape[2] / (shape.heads + 2 * shape.kv_heads),
          .dtype = qkv.dtype,
          .padded = !is_absent(lengths)};
}

}  // namespace

Plan plan(const AttentionForward& op, const ContextPtr& context, Specs given) {
  using Op = AttentionForward;
  if (!is_absent(given[Op::kFirstKeys])) return plan_attention_kernels(op, given);
  const bool training = !is_absent(given[Op::kSaved]);
  const FusedAttention a = describe(training ? AttentionPass::kForward : AttentionPass::kInference,
                                    op.shape, given[Op::kQkv], given[Op::kLengths]);
  const SampleParts parts = find_parts(*context, a);
  if (!parts.algorithm) return plan_attention_kernels(op, given);
  const auto work = [a, training, parts](Stream& stream, Args args, void* scratch) {
    std::array<void*, FusedAttention::kArgs> fused{};
    fused[FusedAttention::kQkv] = args[Op::kQkv];
    fused[FusedAttention::kLengths] = args[Op::kLengths];
    fused[FusedAttention::kY] = args[Op::kY];
    fused[FusedAttention::kSaved] = args[Op::kSaved];
    parts.run(stream, fused, scratch);
    if (!a.padded) return;
    const auto* lengths = pointer<int32_t>(args, Op::kLengths);
    clear_padding(stream, {a.dtype, a.samples, 1, a.length, a.y_row()}, lengths, args[Op::kY]);
    if (!training) return;
    clear_padding(stream, {DType::kF32, a.samples, a.shape.heads, a.length, 1}, lengths,
                  args[Op::kSaved]);
  };
  return function_op(in_row_major(given), work, parts.algorithm->workspace_bytes());
}

Plan plan(const AttentionBackward& op, const ContextPtr& context, Specs given) {
  using Op = AttentionBackward;
  if (!is_absent(given[Op::kFirstKeys])) return plan_attention_kernels(op, given);
  const FusedAttention a =
      describe(AttentionPass::kBackward, op.shape, given[Op::kQkv], given[Op::kLengths]);
  const SampleParts parts = find_parts(*context, a);
  if (!parts.algorithm) return plan_attention_kernels(op, given);
  const auto work = [a, parts](Stream& stream, Args args, void* scratch) {
    std::array<void*, FusedAttention::kArgs> fused{};
    fused[FusedAttention::kQkv] = args[Op::kQkv];
    fused[FusedAttention::kLengths] = args[Op::kLengths];
    fused[FusedAttention::kY] = args[Op::kY];
    fused[FusedAttention::kSaved] = args[Op::kSaved];
    fused[FusedAttention::kDy] = args[Op::kDy];
    fused[FusedAttention::kDqkv] = args[Op::kDqkv];
    parts.run(stream, fused, scratch);
    if (!a.padded) return;
    clear_padding(stream, {a.dtype, a.samples, 1, a.length, a.row()},
                  pointer<int32_t>(args, Op::kLengths), args[Op::kDqkv]);
  };
  return function_op(in_row_major(given), work, parts.algorithm->workspace_bytes());
}

}  // namespace trireme::ops::cuda
