// The samples over which the batch norms of a network compute their statistics in training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/graph.h"
#include "trainer/config/config.h"
#include "trainer/config/grid.h"
#include "trainer/step/batch_plan.h"

namespace trireme::train {

// Returns a warning if a batch norm computes statistics of micro-batches, so that results depend on
// their size, otherwise "".
std::string statistics_warning(const model::Graph& graph, const BatchPlan& batch, const Grid& grid);

// The settings of a run on which the statistics depend.
struct StatisticsSettings {
  const Config& config;
  int ranks = 1;
};
// Returns a description of the change if a batch norm gets statistics of other samples of a step.
std::optional<std::string> statistics_change(const model::Graph& graph,
                                             const StatisticsSettings& before,
                                             const StatisticsSettings& now);

// Throws ConfigError if the statistics of a batch norm would be of a single value per channel,
// whose normalized value is 0: then nothing before the layer is trained. The training data has
// `samples`; 0 if unknown, in which case only full batches are checked.
void require_statistics(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                        int ranks, int64_t samples);

}  // namespace trireme::train
