// A run as it would be on one rank, compiled and planned but not started.
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
  train::MemoryBudget budget;   // the memory available here
  size_t checkpoint_bytes = 0;  // about what a checkpoint takes
};

// What the network is to tell: "10 classes", "target f32 [2]".
std::string target_text(const data::SampleSpec& samples);

// The same on every of `ranks`. `graph` outlives it. Throws ConfigError where the device or the
// precision is not to be had here, or where parameters alone do not fit this machine.
std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks);

// Why `ranks` of them, which share the memory, do not fit this machine; "" where they do.
std::string memory_problem(const train::Config& config, const RankPlan& plan, int ranks);

}  // namespace trireme::cli
