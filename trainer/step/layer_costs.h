// The time that each layer of a network takes in the forward and backward pass of a micro-batch.
#pragma once

#include <cstddef>
#include <vector>

#include "model/graph.h"
#include "model/program.h"
#include "ops/backend.h"

namespace trireme::train {

// Seconds by node of the graph. What prepares the input counts as the first node.
using LayerCosts = std::vector<double>;

// Estimates the times from the bytes that operations read and write and from their floating-point
// operations, at typical speeds of such a device. Equal on all machines.
LayerCosts estimate_layers(const model::Graph& graph, const model::Program& program,
                           DeviceKind kind);

// Returns the median seconds of each instruction of the program over a few micro-batches of zeros,
// which need the memory of measured_bytes().
std::vector<double> measure_instructions(const model::Graph& graph, const model::Program& program,
                                         const model::Parameters& parameters, ops::Backend& backend,
                                         int64_t micro_batch);
size_t measured_bytes(const model::Program& program, const model::Parameters& parameters);

// Sums measured instructions by node.
LayerCosts measure_layers(const model::Graph& graph, const model::Program& program,
                          const model::Parameters& parameters, ops::Backend& backend,
                          int64_t micro_batch);

// Returns the bytes per second that a rank typically reads and writes, for estimates.
double typical_memory_speed(DeviceKind kind);

}  // namespace trireme::train
