#include "launch/plan.h"

#include <fmt/format.h>

#include "trainer/config/device.h"
#include "trainer/config/loading.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/step/training_options.h"

namespace trireme::cli {
namespace {

// Returns the number of batches in memory. On a CPU these include the batches that the loader
// prefetches.
int batches_of(const RankPlan& plan, const Target& target, comm::Communicator& alone) {
  const DeviceKind kind = plan.device->kind();
  if (kind != DeviceKind::kCpu) return train::steps_in_flight(kind);
  const int threads = train::loader_threads(target.config, target.in_memory,
                                            train::spare_cores(target.config, alone, *plan.device));
  return train::batches_in_memory(target.config, threads);
}

}  // namespace

std::string target_text(const data::SampleSpec& samples) {
  return samples.classes > 0 ? fmt::format("{} classes", samples.classes)
                             : "target " + samples.target.to_string();
}

std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks) {
  const train::Config& config = target.config;
  auto plan = std::make_unique<RankPlan>();
  const auto alone = comm::create_local_communicator();
  plan->batch = train::plan_batch(config, ranks);
  plan->device = train::create_device(config, *alone);
  plan->budget = train::memory_budget_of(*plan->device);
  train::require_fits(config,
                      train::min_memory(config, graph, plan->batch, plan->device->kind(), ranks),
                      plan->budget, 1);
  plan->backend = train::create_backend(config, *plan->device);
  model::Parameters& parameters = plan->parameters;
  plan->program = model::Program::compile(
      graph, *plan->backend, train::training_options(config, plan->batch, ranks), parameters);
  plan->memory =
      train::planned_memory(config, graph, plan->batch, plan->device->kind(), ranks, parameters,
                            *plan->program, batches_of(*plan, target, *alone));
  const OptimizerConfig& optimizer = config.run.optimizer();
  const size_t arrays = train::optimizer_state_names(optimizer).size() + train::uses_ema(optimizer);
  plan->checkpoint_bytes = parameters.array_bytes() + parameters.running_stat_bytes() +
                           arrays * parameters.trained_bytes();
  return plan;
}

std::string memory_problem(const train::Config& config, const RankPlan& plan, int ranks) {
  try {
    train::require_fits(config, plan.memory, plan.budget, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme::cli
