#include "trainer/config/grid.h"

#include <fmt/format.h>

namespace trireme::train {

Grid grid_of(const RunConfig& config, int rank, int ranks) {
  const int stages = config.parallel().stages();
  const int replicas = ranks / stages;
  return {stages, replicas, rank / replicas, rank % replicas};
}

void require_grid(const Config& config, int ranks) {
  const int stages = config.run.parallel().stages();
  if (ranks % stages == 0) return;
  throw ConfigError(
      config.where("parallel.stages"),
      fmt::format(
          "{} stages need a multiple of {} ranks, but there {} {}; use {} ranks, or another "
          "number of stages",
          stages, stages, ranks == 1 ? "is" : "are", ranks, (ranks / stages + 1) * stages));
}

}  // namespace trireme::train
