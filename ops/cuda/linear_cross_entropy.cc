#include "ops/linear_cross_entropy.h"

#include "ops/cuda/plans.h"
#include "ops/plan_in_chunks.h"

namespace trireme::ops::cuda {

Plan plan(const LinearCrossEntropy& op, const ContextPtr& context, Specs given) {
  return plan_in_chunks(op, given, LinearCrossEntropy::kChunkBytes,
                        [&](const auto& part, Specs specs) { return plan(part, context, specs); });
}

}  // namespace trireme::ops::cuda
