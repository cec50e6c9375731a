#include "launch/plan.h"

#include <fmt/format.h>

#include "trainer/config/device.h"
#include "trainer/config/loading.h"
#include "trainer/optimizer/optimizer.h"

namespace trireme {
namespace {

// Batches in memory: on a CPU those that the loader fills ahead.
int batches_of(const RankPlan& plan, const Target& target, Communicator& alone) {
  const DeviceKind kind = plan.device->kind();
  if (kind != DeviceKind::kCpu) return steps_under_way(kind);
  const int threads = loader_threads(target.config, target.in_memory,
                                     spare_cores(target.config, alone, *plan.device));
  return batches_in_memory(target.config, threads);
}

}  // namespace

std::string target_text(const SampleSpec& samples) {
  return samples.classes > 0 ? fmt::format("{} classes", samples.classes)
                             : "target " + samples.target.to_string();
}

std::unique_ptr<RankPlan> plan_rank(const Target& target, const Graph& graph, int ranks) {
  const Config& config = target.config;
  auto plan = std::make_unique<RankPlan>();
  const auto alone = create_local_communicator();
  plan->batch = plan_batch(config, ranks);
  plan->device = create_device(config, *alone);
  plan->room = room_of(*plan->device);
  require_room(config, least_memory(config, graph, plan->batch, plan->device->kind()), plan->room,
               1);
  plan->backend = create_backend(config, *plan->device);
  Parameters& parameters = plan->parameters;
  plan->program = Program::compile(graph, *plan->backend,
                                   {.batch = plan->batch.micro,
                                    .dtype = compute_dtype(config),
                                    .accumulate = plan->batch.passes > 1},
                                   parameters);
  plan->memory = planned_memory(config, graph, plan->batch, plan->device->kind(), parameters,
                                *plan->program, batches_of(*plan, target, *alone));
  const size_t arrays = optimizer_arrays(config.run.optimizer()).size();
  plan->checkpoint_bytes =
      parameters.array_bytes() + parameters.running_bytes() + arrays * parameters.trained_bytes();
  return plan;
}

std::string room_problem(const Config& config, const RankPlan& plan, int ranks) {
  try {
    require_room(config, plan.memory, plan.room, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace trireme
