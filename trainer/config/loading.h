// How the samples of a run are loaded, for training and for evaluation.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/mix.h"
#include "trainer/config/config.h"

namespace trireme::train {

// data.threads or, where that is unset, 0 for samples that are in memory and not mixed, and
// otherwise `spare_cores` (see device.h).
int loader_threads(const Config& config, bool in_memory, int spare_cores);
// Batches that the loader has memory for.
int batches_in_memory(const Config& config, int threads);

// All but the order of the samples and the size of batches.
data::LoaderOptions loader_options(const Config& config, comm::Communicator& communicator,
                                   const data::Dataset& dataset, int spare_cores);

// The order of the training samples, with errors placed in the configuration file.
data::OrderOptions training_order(const Config& config, const data::Dataset& training);
// How the samples of a batch are mixed, with errors placed in the configuration file; null: not.
std::unique_ptr<data::Mix> make_mix(const Config& config, const data::SampleSpec& spec);

// For OpenOptions::progress: the ledger's detail and, on rank 0 where opening takes longer than a
// moment, lines on stderr.
std::function<void(std::string_view)> tell_opening(comm::Communicator& communicator);

}  // namespace trireme::train
