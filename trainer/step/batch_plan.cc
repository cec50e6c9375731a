#include "trainer/step/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::train {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t BatchPlan::passes_of(int64_t global_rows, int ranks) const {
  return ceil_div(ceil_div(global_rows, ranks), micro);
}

BatchPlan plan_batch(const Config& config, int ranks) {
  const BatchConfig& batch = config.run.batch();
  if (batch.global() < ranks) {
    throw ConfigError(config.where("batch.global"),
                      fmt::format("{} is less than the {} ranks, which need a sample each; use at "
                                  "least {} or fewer ranks",
                                  batch.global(), ranks, ranks));
  }
  const int64_t share = ceil_div(batch.global(), ranks);
  const int64_t micro = !batch.has_micro()               ? share
                        : batch.micro() == kLargestMicro ? 1
                                                         : batch.micro();
  return with_passes({.global = batch.global(), .micro = share, .passes = 1, .capacity = share},
                     ceil_div(share, std::min(micro, share)));
}

BatchPlan with_passes(BatchPlan plan, int64_t passes) {
  plan.micro = ceil_div(plan.capacity, passes);
  plan.passes = ceil_div(plan.capacity, plan.micro);
  plan.capacity = plan.micro * plan.passes;
  return plan;
}

}  // namespace trireme::train
