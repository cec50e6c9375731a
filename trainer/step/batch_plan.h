// How a global batch is cut, and how many steps work on batches at once.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Over ranks, and each share into micro-batches. The same on all ranks.
struct BatchPlan {
  int64_t global = 0;
  int64_t micro = 0;     // rows of one forward and backward pass
  int64_t passes = 0;    // of a full batch
  int64_t capacity = 0;  // rows that a Batch must have room for: micro * passes

  // Passes of a batch of so many rows on all ranks together. A rank with fewer rows makes as many
  // as the others: layers may wait for each other.
  int64_t passes_of(int64_t global_rows, int ranks) const;
};
// Throws ConfigError when the batch has fewer samples than there are ranks.
BatchPlan plan_batch(const Config& config, int ranks);

// Steps that may be under way at once. A GPU computes one while the next is being prepared, and
// holds a batch for each.
inline int steps_under_way(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1 : 2; }

}  // namespace trireme::train
