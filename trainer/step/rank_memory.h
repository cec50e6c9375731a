// Estimates the memory that a rank needs and checks that it is available, before allocating any.
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
  enum class Cause { kParameters, kActivations, kBatches };  // what the size depends on
  struct Part {
    std::string name;  // for messages: "optimizer state"
    size_t bytes = 0;
    Cause cause = Cause::kParameters;
  };
  std::vector<Part> parts;  // only those with bytes > 0
  model::NetworkSize network;
  bool is_lower_bound = false;  // estimated from shapes, before compilation

  size_t total() const;
  size_t of(Cause cause) const;  // bytes of the parts with this cause
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

// The memory available to the ranks that compute on a device.
struct MemoryBudget {
  size_t bytes = 0;  // 0 if unknown
  std::string name;  // for messages, followed by the size: "this host has"
  int ranks = 1;     // that share it
};
// Returns the memory limit of this process for the CPU, which `local_ranks` ranks share, the memory
// of the device for a GPU.
MemoryBudget memory_budget_of(Device& device, int local_ranks);

// Returns the bytes that the plan of a rank should not exceed: memory.limit_bytes or, if unset, the
// rank's part of the budget without what libraries and the operating system need. 0 if unknown.
size_t memory_limit(const Config& config, const MemoryBudget& budget);

// Returns the lowest limit of any rank; 0 if a rank's is unknown. Collective.
size_t smallest_limit(comm::Communicator& communicator, size_t own);

// Throws a ConfigError that says what to change if the ranks need more than the budget, or a rank
// more than memory.limit_bytes.
void require_fits(const Config& config, const RankMemory& memory, const MemoryBudget& budget);

}  // namespace trireme::train
