// The memory that a rank needs and the memory that is available, before any is allocated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/device.h"
#include "model/program.h"
#include "model/size.h"
#include "trainer/config/config.h"
#include "trainer/step/batch_plan.h"

namespace trireme::train {

struct RankMemory {
  enum class Use {
    kParameters,
    kGradients,
    kOptimizer,
    kSaved,  // activations that wait for the backward pass
    kWork,   // all other activations and workspaces
    kBatches,
  };
  struct Part {
    std::string name;  // for messages: "optimizer state"
    size_t bytes = 0;
    Use use = Use::kParameters;
  };
  std::vector<Part> parts;  // only those with bytes > 0
  model::NetworkSize network;
  bool is_lower_bound = false;  // estimated from shapes, before compilation

  size_t total() const;
  size_t of(Use use) const;  // bytes of the parts with this use
  // Returns the bytes of parameters, gradients and optimizer state, which do not depend on the
  // batch.
  size_t model() const;
};

// Returns a lower bound computed from shapes alone. Throws ConfigError, with the location in the
// configuration file, if the sizes exceed any possible memory.
RankMemory min_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                      DeviceKind kind, int ranks);
// Returns the memory of a compiled network, with room for `batches` full batches.
RankMemory planned_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                          DeviceKind kind, int rank, int ranks, const model::Parameters& parameters,
                          const model::Program& program, int batches);

// Returns whether a rank reads the samples of its batches. A pipeline stage that uses none does
// not, unless it must know how many cannot be read (data.on_bad_record).
bool reads_batches(const Config& config, const model::Program& program);

// Returns the size of a checkpoint of the network, and of its copy in host memory on rank 0.
size_t checkpoint_bytes(const Config& config, const model::NetworkSize& network);

// The memory available to the ranks that compute on a device.
struct MemoryBudget {
  size_t bytes = 0;        // 0 if unknown
  std::string name;        // for messages, followed by the size: "this host has"
  int ranks = 1;           // that share it
  size_t checkpoint = 0;   // what the copy of a checkpoint takes of it
  size_t unplanned = 0;    // what each rank needs beyond its plan
  bool is_strict = false;  // whether all of that must remain, even if it is more than half

  // Returns the part of a rank, without the checkpoint.
  size_t of_rank() const;
  // Returns the part of a rank's plan: without what it needs beyond it, but usually at least half
  // of its part.
  size_t of_plan() const;
};
// Returns the budget of a rank: for a GPU, the memory of the device; for a CPU, the memory of the
// host or the limit of the control group, which `local_ranks` ranks share, or the limit of this
// process's address space, whichever leaves less to the plan. On a CPU, a rank needs beyond its
// plan what it has now: the program, libraries and samples in memory.
MemoryBudget memory_budget_of(Device& device, int local_ranks, const Config& config,
                              const model::Graph& graph);

// Returns the bytes that the plan of a rank must not exceed: memory.limit_bytes, but at most the
// budget's of_rank(), or of_plan() if it is unset. 0 if unknown.
size_t memory_limit(const Config& config, const MemoryBudget& budget);

// Returns the lowest limit of any rank; 0 if a rank's is unknown. Collective.
size_t smallest_limit(comm::Communicator& communicator, size_t own);

}  // namespace trireme::train
