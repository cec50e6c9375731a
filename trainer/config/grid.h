// The grid of ranks: pipeline stages times data-parallel replicas (parallel.stages).
#pragma once

#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trireme::train {

// rank = stage * replicas + replica or, if the stages of a replica are neighbors
// (parallel.neighbors), replica * stages + stage.
struct Grid {
  int stages = 1;    // each has a part of the network's layers
  int replicas = 1;  // of each stage; each computes its part of the global batch
  int stage = 0;     // of this rank
  int replica = 0;
  bool stages_are_neighbors = false;

  bool has_pipeline() const { return stages > 1; }
  bool is_last_stage() const { return stage == stages - 1; }
  // Returns the rank at a position.
  int rank_of(int its_stage, int its_replica) const {
    return stages_are_neighbors ? its_replica * stages + its_stage
                                : its_stage * replicas + its_replica;
  }
};

// Returns the position of a rank. Requires that `ranks` is a multiple of parallel.stages, see
// require_grid(). As long as the number of stages is not chosen (0), there is one.
Grid grid_of(const RunConfig& config, int rank, int ranks);

// Returns the place of each rank, for messages: "stage 1, replica 0". Empty if there is one stage.
std::vector<std::string> rank_roles(const RunConfig& config, int ranks);

// Throws ConfigError unless parallel.stages divides the number of ranks.
void require_grid(const Config& config, int ranks);

}  // namespace trireme::train
