#include "trainer/step/step_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/control.h"
#include "core/error.h"
#include "trainer/step/memory_check.h"
#include "trainer/step/rank_memory.h"
#include "trainer/step/training_program.h"

namespace trireme::train {
namespace {

// Ranks of the same host must make the same plan.
MemoryBudget equal_budget(const Config& config, const model::Graph& graph, Device& device,
                          comm::Communicator& world) {
  MemoryBudget budget;
  comm::together(world, [&] {
    budget = memory_budget_of(device, world.placement().local_ranks, config, graph);
  });
  budget.unplanned = static_cast<size_t>(comm::max(world, static_cast<int64_t>(budget.unplanned)));
  return budget;
}

}  // namespace

StepPrograms::StepPrograms(const Config& config, const model::Graph& graph,
                           std::span<const model::Graph> shorter_graphs, ops::Backend& backend,
                           comm::Communicator& world, comm::Communicator& devices,
                           int loader_batches) {
  Device& device = backend.device();
  const int ranks = world.size();
  const MemoryBudget budget = equal_budget(config, graph, device, world);
  limit = memory_limit(config, budget);
  const TrainingTarget target{.config = config,
                              .graph = graph,
                              .backend = backend,
                              .ranks = ranks,
                              .limit = limit,
                              .batches = device.kind() == DeviceKind::kCpu
                                             ? std::max(1, loader_batches)
                                             : steps_in_flight(device.kind()),
                              .collective = ranks > 1 ? &devices : nullptr,
                              .rank = world.rank(),
                              .cut_limit = smallest_limit(world, limit)};
  int64_t passes = 0;
  comm::together(world, [&] {
    const BatchPlan batch = plan_batch(config, ranks);
    require_fits(target, min_memory(config, graph, batch, device.kind(), ranks), budget);
    passes = choose_passes(target);
  });
  passes = comm::max(world, passes);
  comm::together(world, [&] {
    TrainingProgram compiled = compile_training(target, passes, parameters);
    require_fits(target, compiled.memory, budget);
    plan = compiled.batch;
    stage = std::move(compiled.stage);
    whole = std::move(compiled.program);
    for (const model::Graph& other : shorter_graphs) {
      shorter.push_back(
          {other.input.input.shape[0],
           compile_shorter(target, other, plan, whole->activation_bytes(), parameters)});
    }
  });
}

size_t StepPrograms::number_of(int64_t length) const {
  if (length == 0) return 0;
  const auto found = std::ranges::find(shorter, length, &Shorter::length);
  if (found == shorter.end()) {
    throw Error(fmt::format("there is no program for samples of {} tokens", length));
  }
  return static_cast<size_t>(found - shorter.begin()) + 1;
}

const model::Program& StepPrograms::numbered(size_t number) const {
  return number == 0 ? *whole : *shorter.at(number - 1).program;
}

size_t StepPrograms::max_activation_bytes() const {
  size_t bytes = whole->activation_bytes();
  for (const Shorter& other : shorter) bytes = std::max(bytes, other.program->activation_bytes());
  return bytes;
}

}  // namespace trireme::train
