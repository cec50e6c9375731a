#include "trainer/step/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/graph.h"
#include "trainer/config/grid.h"
#include "trainer/step/pipeline_schedule.h"

namespace trireme::train {
namespace {

// The default with a pipeline: with 4 or more, stages are idle for at most a fifth of the time
// (Huang et al., GPipe, arXiv:1811.06965, section 3).
constexpr int64_t kMicroBatchesPerStage = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t BatchPlan::passes_of(int64_t global_rows, int replicas) const {
  const int64_t largest = has_streams ? std::min(global_rows, ceil_div(global, replicas))
                                      : ceil_div(global_rows, replicas);
  return ceil_div(largest, micro);
}

BatchPlan plan_batch(const Config& config, int ranks) {
  const BatchConfig& batch = config.run.batch();
  require_grid(config, ranks);
  const Grid grid = grid_of(config.run, 0, ranks);
  // If the number of stages is to be chosen, there may be fewer replicas than ranks.
  if (batch.global() < grid.replicas && config.run.parallel().stages() != 0) {
    throw ConfigError(config.where("batch.global"),
                      fmt::format("{} is less than the {} {}, which need a sample each; use at "
                                  "least {} or fewer ranks",
                                  batch.global(), grid.replicas,
                                  grid.has_pipeline() ? "replicas" : "ranks", grid.replicas));
  }
  const int64_t share = ceil_div(batch.global(), grid.replicas);
  const int64_t unset =
      grid.has_pipeline() ? ceil_div(share, kMicroBatchesPerStage * grid.stages) : share;
  const int64_t micro = !batch.has_micro()               ? unset
                        : batch.micro() == kLargestMicro ? 1
                                                         : batch.micro();
  return with_passes({.global = batch.global(),
                      .micro = share,
                      .passes = 1,
                      .capacity = share,
                      .has_streams = model::is_stateful(config.run.model())},
                     ceil_div(share, std::min(micro, share)));
}

BatchPlan with_passes(BatchPlan plan, int64_t passes) {
  plan.micro = ceil_div(plan.capacity, passes);
  plan.passes = ceil_div(plan.capacity, plan.micro);
  plan.capacity = plan.micro * plan.passes;
  return plan;
}

std::string pipeline_warning(const Config& config, const BatchPlan& plan, int ranks) {
  const Grid grid = grid_of(config.run, 0, ranks);
  if (plan.passes >= grid.stages) return "";
  return fmt::format(
      "a step has {} micro-batch{}, fewer than the {} pipeline stages, which are idle for at least "
      "{:.0f}% of the time; {}raise batch.global or use fewer stages",
      plan.passes, plan.passes == 1 ? "" : "es", grid.stages,
      100 * pipeline_bubble(grid.stages, plan.passes), plan.micro > 1 ? "lower batch.micro, " : "");
}

}  // namespace trireme::train
