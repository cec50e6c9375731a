// What a training step consists of: its communicators, compiled networks, memory, streams and
// optimizer. Created together by all ranks, and constant afterwards but for what the memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/bucketer.h"
#include "comm/communicator.h"
#include "core/device.h"
#include "data/loader.h"
#include "model/context.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/optimizer/shard.h"
#include "trainer/optimizer/state_arrays.h"
#include "trainer/step/arrays.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/carried_states.h"
#include "trainer/step/gradient_sync.h"
#include "trainer/step/pipeline.h"
#include "trainer/step/slot.h"
#include "trainer/step/stage_links.h"
#include "trainer/step/step_programs.h"
#include "trainer/step/step_result.h"

namespace trireme::train {

struct StepParts {
  // See Step for the arguments and errors. Collective.
  StepParts(const Config& its_config, const model::Graph& graph, ops::Backend& its_backend,
            comm::Communicator& world, int loader_batches, std::span<const model::Graph> shorter);

  const BatchPlan& plan() const { return programs->plan; }
  const model::Parameters& parameters() const { return programs->parameters; }
  const model::Program& program() const { return *programs->whole; }
  const Grid& grid() const { return stage.grid; }
  bool has_carried() const { return carried->current().bytes() > 0; }
  bool is_sharded() const { return !shard.is_whole(); }
  // See Step.
  double flops(const data::Batch& batch) const;
  StepMemory memory_bytes() const;
  // Returns the ranks that compute the same layers for other samples.
  comm::Communicator& replicas() const { return pipeline ? *pipeline->replicas : *communicator; }

  const Config& config;
  ops::Backend& backend;
  Device& device;
  std::unique_ptr<comm::Communicator> communicator;  // over this device's memory
  // A separate communicator, since buckets are summed concurrently with the layers' own
  // collectives.
  std::unique_ptr<comm::Communicator> bucket_communicator;
  PipelineStage stage;
  Shard shard;
  std::unique_ptr<const StepPrograms> programs;
  int64_t in_flight = 1;   // micro-batches
  size_t input_bytes = 0;  // of a batch
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Stream> copies;
  std::unique_ptr<Pipeline> pipeline;  // null if there is one stage
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StepArrays> arrays;
  std::unique_ptr<CarriedStates> carried;
  std::unique_ptr<GradientSync> sync;
  model::ModelArrays model;
  std::unique_ptr<StateArrays> state;
  // With ZeRO, the arrays of the parameters that the network reads, by bucket.
  std::vector<comm::Bucketer::Array> read_arrays;
  std::vector<std::unique_ptr<StepSlot>> slots;  // destroyed first: recordings use the rest

 private:
  void require_same_layout(comm::Communicator& world) const;
  void require_same_sums() const;
  void create_slots(const model::Graph& graph);
  void add_state_arrays(comm::Communicator& world);
  void add_programs(const model::Graph& graph) const;
};

}  // namespace trireme::train
