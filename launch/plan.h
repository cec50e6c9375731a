// Compiles a run as one of its ranks would and plans its memory, without starting it.
#pragma once

#include <memory>
#include <string>

#include "launch/options.h"
#include "model/program.h"
#include "trainer/step/rank_memory.h"
#include "trainer/step/step.h"

namespace trireme::cli {

struct RankPlan {
  train::BatchPlan batch;
  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Backend> backend;
  model::Parameters parameters;
  std::unique_ptr<const model::Program> program;
  train::RankMemory memory;
  train::MemoryBudget budget;   // the memory available on this machine
  size_t checkpoint_bytes = 0;  // approximate size of a checkpoint
};

// Returns a description of the targets of the samples: "10 classes", "target f32 [2]".
std::string target_text(const data::SampleSpec& samples);

// Returns the plan, which is the same for each of the `ranks` ranks. `graph` must outlive the plan.
// Throws ConfigError if this machine lacks the device or the precision, or memory for the
// parameters alone.
std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks);

// Returns an error message if this machine does not have enough memory for `ranks` such ranks
// together, otherwise "".
std::string memory_problem(const train::Config& config, const RankPlan& plan, int ranks);

}  // namespace trireme::cli
