#include "trainer/step/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "comm/control.h"
#include "comm/device_communicator.h"
#include "ops/step_state.h"
#include "trainer/config/device.h"

namespace trireme::train {
namespace {

// Returns the groups of stages that share a parameter.
std::set<std::vector<int>> sharing_stages(const model::Parameters& parameters) {
  std::set<std::vector<int>> groups;
  for (const auto* all : {&parameters.all, &parameters.of_other_stages}) {
    for (const model::Parameter& parameter : *all) {
      if (parameter.stages.size() > 1 && !parameter.frozen) groups.insert(parameter.stages);
    }
  }
  return groups;
}

}  // namespace

// Copies through host memory occupy a thread that all streams share, so a transfer that waits for
// another stage could block the one that this stage waits for.
std::string why_no_stages(const Config& config, comm::Communicator& world, Device& device) {
  if (device.kind() != DeviceKind::kCuda) return "";
  if (transport_of(config) == comm::Transport::kMpi) return "train.transport is mpi";
  return comm::why_not_nccl(world, device);
}

std::unique_ptr<comm::Communicator> connect_devices(const Config& config, comm::Communicator& world,
                                                    Device& device) {
  if (config.run.parallel().stages() > 1) {
    const std::string problem = why_no_stages(config, world, device);
    comm::together(world, [&] {
      if (problem.empty()) return;
      throw ConfigError(
          config.where("parallel.stages"),
          fmt::format("pipeline stages on GPUs need NCCL, but {}; use train.transport: auto and a "
                      "GPU for each rank, or train.device: cpu, or parallel.stages: 1",
                      problem));
    });
  }
  return comm::create_device_communicator(world, device, transport_of(config));
}

Pipeline::Pipeline(comm::Communicator& world, comm::Communicator& communicator, const Grid& grid,
                   Device& device)
    : host_replicas(world.split(grid.stage, grid.replica)),
      replicas(communicator.split(grid.stage, grid.replica)),
      stages(communicator.split(grid.replica, grid.stage)),
      links(communicator, grid, device) {}

void Pipeline::connect(const model::Parameters& parameters, Device& device, Stream& compute,
                       const model::Program& program, int64_t in_flight) {
  exchange = std::make_unique<StageExchange>(links, device, compute, program, in_flight,
                                             /*has_backward=*/true);
  for (const std::vector<int>& group : sharing_stages(parameters)) {
    has_shared_gradients_ = true;
    const int stage = stages->rank();
    const auto place = std::ranges::find(group, stage);
    auto split = stages->split(place == group.end() ? 1 + stage : 0, stage);
    if (place == group.end()) continue;
    for (const model::Parameter& parameter : parameters.all) {
      if (parameter.stages != group || parameter.frozen) continue;
      shared_gradients_.push_back({parameter.begin, parameter.end, split.get()});
    }
    sharing_.push_back(std::move(split));
  }
}

void Pipeline::sum_shared_gradients(void* gradients, Stream& compute) const {
  for (const SharedGradient& shared : shared_gradients_) {
    shared.communicator->all_reduce_sum(static_cast<float*>(gradients) + shared.begin,
                                        shared.end - shared.begin, DType::kF32, compute);
  }
}

void Pipeline::sum_metrics(void* gradients, Stream& compute) const {
  stages->all_reduce_sum(gradients, ops::kMetricCount, DType::kF32, compute);
}

}  // namespace trireme::train
