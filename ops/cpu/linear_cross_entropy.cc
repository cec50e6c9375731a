#include "ops/linear_cross_entropy.h"

#include "ops/cpu/plans.h"
#include "ops/plan_in_chunks.h"

namespace trireme::ops::cpu {

Plan plan(const LinearCrossEntropy& op, const EnginePtr& engine, Specs given) {
  return plan_in_chunks(op, given,
                        [&](const auto& part, Specs specs) { return plan(part, engine, specs); });
}

}  // namespace trireme::ops::cpu
