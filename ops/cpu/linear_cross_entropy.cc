#include "ops/linear_cross_entropy.h"

#include <algorithm>

#include "ops/cpu/in_f32.h"
#include "ops/cpu/plans.h"
#include "ops/plan_in_chunks.h"

namespace trireme::ops::cpu {
namespace {

// Returns the bytes of logits that exist at a time. Three products and the loss read and write
// them, so few rows, which stay in the cache, take less time; but every chunk reads and writes all
// of dweight, so kMinRows are computed at a time even if they do not.
int64_t chunk_bytes(const TensorSpec& x, const TensorSpec& weight) {
  constexpr int64_t kCached = int64_t{8} << 20, kMinRows = 256;
  const int64_t row_bytes = weight.shape[0] * static_cast<int64_t>(size_of(x.dtype));
  return std::min(std::max(kCached, kMinRows * row_bytes), LinearCrossEntropy::kChunkBytes);
}

}  // namespace

Plan plan(const LinearCrossEntropy& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  using Op = LinearCrossEntropy;
  return plan_in_chunks(op, given, chunk_bytes(given[Op::kX], given[Op::kWeight]),
                        [&](const auto& part, Specs specs) { return plan(part, engine, specs); });
}

}  // namespace trireme::ops::cpu
