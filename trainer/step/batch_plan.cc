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
  BatchPlan plan;
  plan.global = batch.global();
  plan.passes = batch.has_micro() ? ceil_div(share, std::min(batch.micro(), share)) : 1;
  plan.micro = ceil_div(share, plan.passes);
  plan.capacity = plan.micro * plan.passes;
  return plan;
}

}  // namespace trireme::train
