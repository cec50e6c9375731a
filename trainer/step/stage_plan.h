// Decides where a network is cut into pipeline stages.
#pragma once

#include <vector>

#include "core/device.h"
#include "model/graph.h"
#include "model/program.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns the first node of each stage but the first. `whole` is the training program of all of the
// graph for one micro-batch. Cuts after the layers of parallel.cut_after or, if there are none,
// where the predicted time of the slowest stage is lowest. Throws ConfigError if the network cannot
// be cut there or into that many stages, or if a layer communicates with all ranks (synchronized
// batch norm).
std::vector<int> plan_stages(const Config& config, const model::Graph& graph,
                             const model::Program& whole, DeviceKind kind);

}  // namespace trireme::train
