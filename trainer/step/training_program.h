// Compiles the training program of a rank so that it fits into memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/collective.h"
#include "model/graph.h"
#include "model/program.h"
#include "trainer/config/config.h"
#include "trainer/optimizer/shard.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/rank_memory.h"

namespace trireme::train {

struct TrainingProgram {
  BatchPlan batch;
  model::Stage stage = {};  // of the network that the program is compiled for
  std::unique_ptr<const model::Program> program = nullptr;
  RankMemory memory = {};
};

// What a training program is compiled for. All references must outlive it.
struct TrainingTarget {
  const Config& config;
  const model::Graph& graph;
  ops::Backend& backend;
  int ranks;
  size_t limit;                      // see memory_limit()
  int batches;                       // full batches in memory
  Collective* collective = nullptr;  // see CompileOptions::collective
  int rank = 0;
  size_t cut_limit = 0;  // the limit for stages when the network is cut; equal on all ranks
};

// Returns the number of passes of a step: as configured or, with batch.micro -1, the smallest with
// which the plans of all ranks fit into memory without recomputation; if there is none, with it; if
// there is none, that of micro-batches of one sample. With pipeline stages, at least as many as if
// batch.micro were unset.
int64_t choose_passes(const TrainingTarget& target);

// Compiles the program of the whole network, whatever the number of stages. Fills in `parameters`,
// which must be empty.
std::unique_ptr<const model::Program> compile_whole(const TrainingTarget& target,
                                                    const BatchPlan& batch,
                                                    model::Parameters& parameters);

// Returns whether the passes of a step add to gradients that are zero before the first one.
// Otherwise a pass overwrites them.
bool accumulates(const Config& config, const BatchPlan& batch, Shard shard);

// Compiles the program with this number of passes. If `parameters` are empty, fills them in. If the
// plan exceeds the limit, the program recomputes as much as is needed and possible.
TrainingProgram compile_training(const TrainingTarget& target, int64_t passes,
                                 model::Parameters& parameters);

// As compile_training, for the pipeline stage whose ranks need most memory, whatever the target's
// rank.
TrainingProgram compile_largest_stage(const TrainingTarget& target, int64_t passes,
                                      model::Parameters& parameters);

// Compiles the program of a network for shorter samples, which shares the parameters, the batch and
// the memory of the training program: if it needs more activations than that, it recomputes.
std::unique_ptr<const model::Program> compile_shorter(const TrainingTarget& target,
                                                      const model::Graph& shorter,
                                                      const BatchPlan& batch,
                                                      size_t activation_bytes,
                                                      model::Parameters& parameters);

// Returns the number of operations of the forward pass that run again in the backward pass.
int64_t repeated_operations(const model::Program& program);

// Returns a description of what the program recomputes, "" if nothing: "26 of 64 operations of the
// forward pass run again in the backward pass (6.1% more floating-point operations)".
std::string recomputation_text(const model::Program& program);

}  // namespace trireme::train
