// Compiles a run as one of its ranks would and plans its memory, without starting it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/options.h"
#include "model/program.h"
#include "trainer/step/parallel_choice.h"
#include "trainer/step/planned_collective.h"
#include "trainer/step/rank_memory.h"
#include "trainer/step/training_program.h"

namespace trireme::cli {

struct RankPlan {
  train::BatchPlan batch;
  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<Collective> collective;  // null for one rank
  model::Parameters parameters;
  std::unique_ptr<const model::Program> program;
  train::RankMemory memory;
  train::MemoryBudget budget;  // the memory available on this machine
  size_t limit = 0;            // see train::memory_limit
  int stage = 0;               // the pipeline stage that it plans
  int ranks = 1;
  int batches = 1;              // full batches in memory
  size_t checkpoint_bytes = 0;  // see train::checkpoint_bytes
};

// Returns a description of the targets of the samples: "10 classes", "target f32 [2]".
std::string target_text(const data::SampleSpec& samples);

// A command that only prints something should not take the memory of others.
inline constexpr size_t kMaxMeasuredBytes = size_t{2} << 30;

std::string bytes_text(size_t bytes);  // "1.50 GiB"

// Where the ranks of a planned run are.
struct PlannedHosts {
  int hosts = 1;         // with equally many consecutive ranks each
  double gigabits = 10;  // per second between hosts
};
// Predicts the step with the configured number of pipeline stages and with one or, if it is 0, with
// all that are possible, and sets in the target's configuration what is to be chosen. Throws
// ConfigError.
std::vector<train::LayoutPrediction> predict_layouts(Target& target, const model::Graph& graph,
                                                     int ranks, const PlannedHosts& hosts);

// Returns the plan of the pipeline stage whose ranks need most memory. `local_ranks` of the `ranks`
// ranks share this machine's memory and cores. `graph` must outlive the plan. Throws
// ConfigError if this machine lacks the device or the precision, or memory for the parameters
// alone.
std::unique_ptr<RankPlan> plan_rank(const Target& target, const model::Graph& graph, int ranks,
                                    int local_ranks);

// Compiles the run, whose settings may differ from those of the plan, with the plan's batches and a
// memory limit, for a rank, or else for the stage that needs most memory; see compile_training.
// Limit 0: without recomputation; 1: with all that saves memory.
train::TrainingProgram plan_choice(const Target& target, const model::Graph& graph,
                                   const RankPlan& plan, size_t limit,
                                   std::optional<int> rank = {});

// Returns an error message if this machine does not have enough memory for the plan, or the plan
// exceeds memory.limit_bytes, otherwise "".
std::string memory_problem(const Target& target, const model::Graph& graph, const RankPlan& plan);

}  // namespace trireme::cli
