#include "trainer/config/grid.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::train {

Grid grid_of(const RunConfig& config, int rank, int ranks) {
  const int stages = std::max(1, config.parallel().stages());
  const int replicas = ranks / stages;
  if (config.parallel().neighbors() == ParallelConfig::STAGES) {
    return {stages, replicas, rank % stages, rank / stages, /*stages_are_neighbors=*/true};
  }
  return {stages, replicas, rank / replicas, rank % replicas};
}

std::vector<std::string> rank_roles(const RunConfig& config, int ranks) {
  std::vector<std::string> roles;
  for (int rank = 0; rank < ranks && config.parallel().stages() > 1; ++rank) {
    const Grid grid = grid_of(config, rank, ranks);
    roles.push_back(fmt::format("stage {}, replica {}", grid.stage, grid.replica));
  }
  return roles;
}

void require_grid(const Config& config, int ranks) {
  const int stages = std::max(1, config.run.parallel().stages());
  if (ranks % stages == 0) return;
  throw ConfigError(
      config.where("parallel.stages"),
      fmt::format(
          "{} stages need a multiple of {} ranks, but there {} {}; use {} ranks, or another "
          "number of stages",
          stages, stages, ranks == 1 ? "is" : "are", ranks, (ranks / stages + 1) * stages));
}

}  // namespace trireme::train
