// What a training step with several pipeline stages has in addition: the process groups of the
// grid, the exchange with adjacent stages, and sums over stages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/parameters.h"
#include "trainer/config/config.h"
#include "trainer/config/grid.h"
#include "trainer/step/stage_links.h"

namespace trireme::train {

// Returns why ranks on such devices cannot be pipeline stages: "train.transport is mpi"; empty if
// they can. Equal on all ranks, which must call it together.
std::string why_no_stages(const Config& config, comm::Communicator& world, Device& device);

// Returns the communicator of all ranks over the memory of their devices. All ranks must call it
// together. Throws AgreedError if there are pipeline stages on GPUs that NCCL cannot connect.
std::unique_ptr<comm::Communicator> connect_devices(const Config& config, comm::Communicator& world,
                                                    Device& device);

struct Pipeline {
  // `world` connects all ranks over host memory, `communicator` over device memory. All arguments
  // must outlive the pipeline. All ranks must call it together.
  Pipeline(comm::Communicator& world, comm::Communicator& communicator, const Grid& grid,
           Device& device);

  // Creates the exchange, and the groups of stages that share parameters. To be called once, by all
  // ranks together.
  void connect(const model::Parameters& parameters, Device& device, Stream& compute,
               const model::Program& program, int64_t in_flight);

  // Returns whether any stages share parameters. Equal on all ranks.
  bool has_shared_gradients() const { return has_shared_gradients_; }
  // Queue the sums of shared gradients over the stages that have them, and of the metrics over all
  // stages.
  void sum_shared_gradients(void* gradients, Stream& compute) const;
  void sum_metrics(void* gradients, Stream& compute) const;

  std::unique_ptr<comm::Communicator> host_replicas;  // over host memory
  std::unique_ptr<comm::Communicator> replicas;       // over device memory
  std::unique_ptr<comm::Communicator> stages;         // of this replica, over device memory
  StageLinks links;
  std::unique_ptr<StageExchange> exchange;

 private:
  // A parameter of this stage that other stages have, too.
  struct SharedGradient {
    int64_t begin = 0;  // elements of the gradient array
    int64_t end = 0;
    comm::Communicator* communicator = nullptr;
  };
  bool has_shared_gradients_ = false;
  std::vector<std::unique_ptr<comm::Communicator>>
      sharing_;  // groups of stages that this one is in
  std::vector<SharedGradient> shared_gradients_;
};

}  // namespace trireme::train
