// Checks, before the first step, that all ranks run the same program with the same configuration,
// data and parameter layout. Ranks that differ would hang, crash or, worst, silently add up
// gradients of different parameters.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/fingerprint.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::train {

// (name, value) pairs with unique names, such as ("batch.global", "64").
using RankProperties = std::vector<std::pair<std::string, std::string>>;

// Returns the version and build id of the program and every field of the configuration that must be
// the same on all ranks. Fields that may differ between hosts (paths, threads) are not included.
RankProperties program_properties(const RunConfig& config);
// Returns the device's kind and the shapes of the parameters.
RankProperties network_properties(const Device& device, const model::Graph& graph);
// Returns the offset and memory layout of every parameter in the flat arrays.
RankProperties layout_properties(const model::Parameters& parameters);

// Throws AgreedError (`code`) on all ranks of the group if the properties of any differ from those
// of its first: "rank 2 differs from rank 0: batch.global is 64, but 32 on rank 0". Collective: all
// ranks call it.
void require_same_properties(comm::Communicator& communicator, const RankProperties& own,
                             ExitCode code = ExitCode::kBadConfig);

// The samples of each part of the data, by its name ("training").
using DataParts = std::vector<std::pair<std::string, const data::Dataset*>>;

// Throws AgreedError (kBadData) on all ranks if the form or the fingerprint of the samples of any
// differs from those of the first: "the ranks do not see the same data: rank 1 differs from rank 0:
// checksum of targets of training samples is ...". Of the ranks that read the same files (they are
// on one host and have the same `config`), only the first computes fingerprints, and returns them.
// Collective.
std::vector<data::Fingerprint> require_same_data(comm::Communicator& communicator,
                                                 const DataConfig& config, const DataParts& parts);

// Returns the build id that the linker gave the running program, in hex, or "" if it has none.
std::string build_id();

}  // namespace trireme::train
