// Splits a global batch over ranks and micro-batches.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"
#include "trainer/config/config.h"

namespace trireme::train {

// The split of a batch, which is the same on all ranks.
struct BatchPlan {
  int64_t global = 0;    // samples of a full batch on all ranks together
  int64_t micro = 0;     // rows of one forward and backward pass on a rank
  int64_t passes = 0;    // forward and backward passes of a full batch on a rank
  int64_t capacity = 0;  // rows that a rank's data::Batch must have room for: micro * passes
  // A row of the batch always belongs to the same rank, even if an epoch's last batch is short.
  bool has_streams = false;

  // Returns the passes for a batch with `global_rows` rows on all ranks together. All ranks run the
  // same number, even those with fewer rows, since layers may communicate (synchronized batch
  // norm).
  int64_t passes_of(int64_t global_rows, int replicas) const;
};
// Throws ConfigError if the batch has fewer samples than there are replicas (grid.h), or if
// parallel.stages does not divide the number of ranks. With kLargestMicro, plans with micro-batches
// of one sample, the smallest that may be chosen.
BatchPlan plan_batch(const Config& config, int ranks);
// Returns the plan with this number of passes.
BatchPlan with_passes(BatchPlan plan, int64_t passes);

// Returns a warning if a step has fewer micro-batches than there are pipeline stages, otherwise "".
std::string pipeline_warning(const Config& config, const BatchPlan& plan, int ranks);

// Returns how many steps may be in flight at once. A GPU computes one while the host queues the
// next, and has memory for the batches of both.
inline int steps_in_flight(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1 : 2; }

}  // namespace trireme::train
