// Times the operations of a program.
#pragma once

#include <vector>

#include "launch/plan.h"
#include "model/graph.h"

namespace trireme::cli {

// Returns the seconds that each operation of the plan's program takes (Program::instructions).
// Trains on a few micro-batches of zeros, in the memory that the plan needs for them.
std::vector<double> measure_operations(const RankPlan& plan, const model::Graph& graph);

// Returns the seconds that operations take which run again in the backward pass of a micro-batch,
// in a program for the same network and micro-batch as the measured one.
double recomputation_seconds(const model::Program& program, const RankPlan& measured,
                             const std::vector<double>& seconds);

}  // namespace trireme::cli
