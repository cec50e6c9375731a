#include "launch/plan.h"

#include <fmt/format.h>

#include "trainer/device.h"
#include "trainer/loading.h"
#include "trainer/optimizer.h"

namespace trireme {
namespace {

std::pair<std::string, size_t> batches_memory(const RankPlan& plan, const Target& target,
                                              Communicator& alone) {
  const Config& config = target.config;
  const DeviceKind kind = plan.device->kind();
  // Of a CPU those that the loader fills ahead.
  const int threads =
      loader_threads(config, target.in_memory, spare_cores(config, alone, *plan.device));
  const int batches =
      kind == DeviceKind::kCpu ? batches_in_memory(config, threads) : steps_under_way(kind);
  const size_t sample = target.samples.input.bytes() + target.samples.target.bytes();
  return {fmt::format("batches ({} of {} samples)", batches, plan.batch.capacity),
          static_cast<size_t>(batches) * static_cast<size_t>(plan.batch.capacity) * sample};
}

}  // namespace

size_t RankPlan::memory_bytes() const {
  size_t total = 0;
  for (const auto& [name, bytes] : memory) total += bytes;
  return total;
}

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
  plan->backend = create_backend(config, *plan->device);
  Parameters& parameters = plan->parameters;
  plan->program = Program::compile(graph, *plan->backend,
                                   {.batch = plan->batch.micro,
                                    .dtype = compute_dtype(config),
                                    .accumulate = plan->batch.passes > 1},
                                   parameters);
  const Optimizer optimizer(config.run, parameters, *plan->backend);
  const LowPrecisionCopy low_precision(parameters, *plan->backend);
  // Running values are kept as they were before each step under way.
  const auto copies = static_cast<size_t>(1 + steps_under_way(plan->device->kind()));
  plan->memory = {{"parameters", parameters.array_bytes() + copies * parameters.running_bytes()},
                  {fmt::format("parameters in {}", Precision_Name(config.run.train().precision())),
                   low_precision.bytes()},
                  {"gradients", parameters.trained_bytes()},
                  {"optimizer state", optimizer.state_bytes()},
                  {"activations and workspaces", plan->program->activation_bytes()},
                  batches_memory(*plan, target, *alone)};
  plan->checkpoint_bytes =
      parameters.array_bytes() + parameters.running_bytes() + optimizer.state_bytes();
  std::erase_if(plan->memory, [](const auto& part) { return part.second == 0; });
  return plan;
}

}  // namespace trireme
