// Decides where a network is cut into pipeline stages.
#pragma once

#include <cstddef>
#include <vector>

#include "model/graph.h"
#include "model/program.h"
#include "ops/backend.h"
#include "trainer/config/config.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/layer_costs.h"

namespace trireme::train {

// A network to be cut into parallel.stages stages. All references must outlive it.
struct NetworkToCut {
  const Config& config;
  const model::Graph& graph;
  ops::Backend& backend;
  const model::Program& whole;  // the training program of all of the graph, for a micro-batch
  const model::Parameters& parameters;  // of `whole`
  const BatchPlan& batch;
  int ranks = 1;
  size_t limit = 0;  // memory of a rank, see memory_limit(); 0 if unknown. Equal on all ranks
};

// Returns the first node of each stage but the first. Cuts after the layers of parallel.cut_after
// or, if there are none, so that the slowest stage, with its transfers, is as fast as possible
// among the places with which all stages fit into the limit; if there are none, the largest stage
// is as small as possible. Throws ConfigError if the network cannot be cut there or into that many
// stages, or if a layer communicates with all ranks (synchronized batch norm).
std::vector<int> plan_stages(const NetworkToCut& network, const LayerCosts& costs);

}  // namespace trireme::train
