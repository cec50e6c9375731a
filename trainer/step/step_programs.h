// The programs that a step runs on this rank, and what they were compiled for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "model/graph.h"
#include "model/parameters.h"
#include "model/program.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/step/batch_plan.h"

namespace trireme::train {

struct StepPrograms {
  // A program for samples of fewer tokens.
  struct Shorter {
    int64_t length;
    std::unique_ptr<const model::Program> program;
  };

  // Plans the batch and compiles the network and the `shorter` ones. `world` works on host memory,
  // `devices` on that of the devices. For `loader_batches`, see Step. All arguments must outlive
  // the programs. Throws AgreedError if the network does not fit into memory. Collective.
  StepPrograms(const Config& config, const model::Graph& graph,
               std::span<const model::Graph> shorter_graphs, ops::Backend& backend,
               comm::Communicator& world, comm::Communicator& devices, int loader_batches);

  // Returns which program computes samples of this length, see data::Batch::length: 0 for `whole`,
  // or 1 + the index in `shorter`.
  size_t number_of(int64_t length) const;
  const model::Program& numbered(size_t number) const;
  // Returns the bytes of activations of the program that has most of them.
  size_t max_activation_bytes() const;

  size_t limit = 0;  // see Step::memory_limit
  BatchPlan plan;
  model::Stage stage;  // of the network that the programs are compiled for
  model::Parameters parameters;
  std::unique_ptr<const model::Program> whole;  // for samples with all tokens
  std::vector<Shorter> shorter;
};

}  // namespace trireme::train
