// What all ranks must have in common to train together, compared before the first step: a rank that
// has anything else would wait, crash or, worst, add up what does not belong together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "model/graph.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Names, each once, and their values: "batch.global" and "64".
using Facts = std::vector<std::pair<std::string, std::string>>;

// The program and its configuration, but for what may differ between hosts: where files lie, and
// threads.
Facts program_facts(const RunConfig& config);
// The device's kind, the samples (form, number and a checksum of a few), and the shapes of what is
// trained.
Facts input_facts(const Device& device, const data::Dataset& training,
                  const data::Dataset& evaluation, const model::Graph& graph);
// Where the arrays hold each parameter, in which order of elements.
Facts layout_facts(const model::Parameters& parameters);

// All ranks call it together. Throws AgreedError (kBadConfig) where a rank has other facts than
// rank 0: "rank 2 differs from rank 0: batch.global is 64 there, 32 here".
void require_alike(comm::Communicator& communicator, const Facts& own);

// What the linker called this very program, as hex; empty where it was not told to.
std::string build_id();

}  // namespace trireme::train
