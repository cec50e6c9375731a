#include "launch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "trainer/config/device.h"
#include "trainer/config/loading.h"
#include "trainer/step/memory_check.h"

namespace trireme::cli {
namespace {

// Returns the number of batches in memory. On a CPU these include the batches that the loader
// prefetches.
int batches_of(const RankPlan& plan, const Target& target, comm::Communicator& alone,
               int local_ranks) {
  const DeviceKind kind = plan.device->kind();
  if (kind != DeviceKind::kCpu) return train::steps_in_flight(kind);
  const int threads =
      train::loader_threads(target.config, target.in_memory,
                            train::spare_cores(target.config, alone, *plan.device, local_ranks));
  return train::batches_in_memory(target.config, threads);
}

train::TrainingTarget training_target(const train::Config& config, const model::Graph& graph,
                                      const RankPlan& plan, size_t limit) {
  return {.config = config,
          .graph = graph,
          .backend = *plan.backend,
          .ranks = plan.ranks,
          .limit = limit,
          .batches = plan.batches,
          .collective = plan.collective.get(),
          .cut_limit = plan.limit};
}

}  // namespace

std::string target_text(const data::SampleSpec& samples) {
  return samples.classes > 0 ? fmt::format("{} classes", samples.classes)
                             : "target " + samples.target.to_string();
}

std::string bytes_text(size_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::vector<train::LayoutPrediction> predict_layouts(Target& target, const model::Graph& graph,
                                                     int ranks, const PlannedHosts& hosts) {
  const train::Config config = target.config;
  const auto alone = comm::create_local_communicator();
  const int local_ranks = (ranks + hosts.hosts - 1) / hosts.hosts;
  const auto device = train::create_device(config, *alone, local_ranks);
  const auto backend = train::create_backend(config, *device);
  const size_t limit =
      train::memory_limit(config, train::memory_budget_of(*device, local_ranks, config, graph));
  train::LayoutPredictor predictor(
      config, graph, *backend, train::even_hosts(ranks, hosts.hosts, 1e9 / 8 * hosts.gigabits),
      limit, limit > 0 ? std::min(limit, kMaxMeasuredBytes) : kMaxMeasuredBytes);
  const int stages = config.run.parallel().stages();
  if (stages == 0) {
    std::vector<train::LayoutPrediction> all = predictor.all();
    train::adopt(train::fastest(all, limit), target.config);
    return all;
  }
  std::vector<train::LayoutPrediction> both;
  both.push_back(predictor.predict(stages));
  train::adopt(both.front(), target.config);
  try {
    both.insert(both.begin(), predictor.predict(1));
  } catch (const ConfigError&) {
    // The batch has fewer samples than there are ranks.
  }
  return both;
}

std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks,
                                    int local_ranks) {
  const train::Config& config = target.config;
  auto plan = std::make_unique<RankPlan>();
  const auto alone = comm::create_local_communicator();
  plan->device = train::create_device(config, *alone, local_ranks);
  plan->budget = train::memory_budget_of(*plan->device, local_ranks, config, graph);
  plan->limit = train::memory_limit(config, plan->budget);
  plan->backend = train::create_backend(config, *plan->device);
  plan->ranks = ranks;
  if (ranks > 1) plan->collective = std::make_unique<train::PlannedCollective>(ranks);
  plan->batches = batches_of(*plan, target, *alone, local_ranks);
  const DeviceKind kind = plan->device->kind();
  const train::TrainingTarget wanted = training_target(config, graph, *plan, plan->limit);
  train::require_fits(
      wanted, train::min_memory(config, graph, train::plan_batch(config, ranks), kind, ranks),
      plan->budget);
  model::Parameters& parameters = plan->parameters;
  train::TrainingProgram compiled =
      train::compile_largest_stage(wanted, train::choose_passes(wanted), parameters);
  plan->stage = compiled.stage.index;
  plan->batch = compiled.batch;
  plan->program = std::move(compiled.program);
  plan->memory = std::move(compiled.memory);
  plan->checkpoint_bytes = train::checkpoint_bytes(config, plan->memory.network);
  return plan;
}

train::TrainingProgram plan_choice(const Target& target, const model::Graph& graph,
                                   const RankPlan& plan, size_t limit, std::optional<int> rank) {
  model::Parameters parameters;
  train::TrainingTarget wanted = training_target(target.config, graph, plan, limit);
  if (!rank) return train::compile_largest_stage(wanted, plan.batch.passes, parameters);
  wanted.rank = *rank;
  return train::compile_training(wanted, plan.batch.passes, parameters);
}

std::string memory_problem(const Target& target, const model::Graph& graph, const RankPlan& plan) {
  try {
    train::require_fits(training_target(target.config, graph, plan, plan.limit), plan.memory,
                        plan.budget);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::cli
