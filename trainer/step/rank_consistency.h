// Checks, before the first step, that all ranks run the same program with the same configuration,
// data and parameter layout. Ranks that differ would hang, crash or, worst, silently add up
// gradients of different parameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::train {

// (name, value) pairs with unique names, such as ("batch.global", "64").
using RankProperties = std::vector<std::pair<std::string, std::string>>;

// Returns the version and build id of the program and every field of the configuration that must be
// the same on all ranks. Fields that may differ between hosts (paths, threads) are not included.
RankProperties program_properties(const RunConfig& config);
// Returns the device's kind, the form, number and sampled checksum of the samples, and the shapes
// of the parameters.
RankProperties input_properties(const Device& device, const data::Dataset& training,
                                const data::Dataset& evaluation, const model::Graph& graph);
// Returns the form, number and sampled checksum of the samples of an evaluation.
RankProperties sample_properties(const data::Dataset& samples);
// Returns the offset and memory layout of every parameter in the flat arrays.
RankProperties layout_properties(const model::Parameters& parameters);

// Throws AgreedError (kBadConfig) on all ranks of the group if the properties of any differ from
// those of its first: "rank 2 differs from rank 0: batch.global is 64, but 32 on rank 0".
// Collective: all ranks call it.
void require_same_properties(comm::Communicator& communicator, const RankProperties& own);

// Returns the build id that the linker gave the running program, in hex, or "" if it has none.
std::string build_id();

}  // namespace trireme::train
