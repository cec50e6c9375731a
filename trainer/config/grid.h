// The grid of ranks: pipeline stages times data-parallel replicas (parallel.stages).
#pragma once

#include "trainer/config/config.h"

namespace trireme::train {

// rank = stage * replicas + replica.
struct Grid {
  int stages = 1;    // each has a part of the network's layers
  int replicas = 1;  // of each stage; each computes its part of the global batch
  int stage = 0;     // of this rank
  int replica = 0;

  bool has_pipeline() const { return stages > 1; }
  bool is_last_stage() const { return stage == stages - 1; }
};

// Returns the position of a rank. Requires that `ranks` is a multiple of parallel.stages, see
// require_grid().
Grid grid_of(const RunConfig& config, int rank, int ranks);

// Throws ConfigError unless parallel.stages divides the number of ranks.
void require_grid(const Config& config, int ranks);

}  // namespace trireme::train
