#include "ops/cuda/fused_attention.h"

#include <fmt/format.h>

namespace trireme::ops::cuda {

std::string key(const FusedAttention& a) {
  constexpr const char* kPasses[] = {"inference", "forward", "backward"};
  return fmt::format("attention {} [{}, {}] heads {} of {} kv heads {} {} scale {}{}{}",
                     kPasses[static_cast<int>(a.pass)], a.samples, a.length, a.shape.heads, a.dim,
                     a.shape.kv_heads, name_of(a.dtype), a.shape.scale,
                     a.shape.causal ? " causal" : "", a.padded ? " padded" : "");
}

std::vector<size_t> bytes(const FusedAttention& a) {
  const auto size = [&](int64_t row, DType dtype) {
    return static_cast<size_t>(a.samples * a.length * row) * size_of(dtype);
  };
  const bool backward = a.pass == AttentionPass::kBackward;
  std::vector<size_t> sizes(FusedAttention::kArgs);
  sizes[FusedAttention::kQkv] = size(a.row(), a.dtype);
  if (a.padded) {
    sizes[FusedAttention::kLengths] = static_cast<size_t>(a.samples) * sizeof(int32_t);
  }
  sizes[FusedAttention::kY] = size(a.y_row(), a.dtype);
  if (a.pass != AttentionPass::kInference) {
    sizes[FusedAttention::kSaved] = size(a.shape.heads, DType::kF32);
  }
  if (backward) sizes[FusedAttention::kDy] = size(a.y_row(), a.dtype);
  if (backward) sizes[FusedAttention::kDqkv] = size(a.row(), a.dtype);
  return sizes;
}

}  // namespace trireme::ops::cuda
