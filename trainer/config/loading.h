// Options for loading the samples of a run, for training and for evaluation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/mix.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns data.threads or, if that is unset, 0 for samples that are in memory and not mixed, and
// otherwise `spare_cores` (see device.h).
int loader_threads(const Config& config, bool in_memory, int spare_cores);
// Returns the number of batches that the loader buffers with this number of threads.
int batches_in_memory(const Config& config, int threads);

// Returns the loader's options, except the order of samples and the batch size.
data::LoaderOptions loader_options(const Config& config, comm::Communicator& communicator,
                                   const data::Dataset& dataset, int spare_cores);

// Returns the order of the training samples. ConfigErrors name the location in the configuration
// file.
data::OrderOptions training_order(const Config& config, const data::Dataset& training);
// Returns the lengths of the batches and how much of them is padding in the first epoch, "" unless
// samples are in buckets: "40, 64, 96 or 128 tokens, of which 14% are padding (52% with 128)".
std::string padding_text(const Config& config, const data::OrderOptions& order);
// Returns the mixing of samples, or null if data.mix is unset. ConfigErrors name the location in
// the configuration file.
std::unique_ptr<data::Mix> make_mix(const Config& config, const data::SampleSpec& spec);

// Returns a callback for data::OpenOptions::progress. It sets the ledger's detail and, on rank 0,
// prints a line to stderr every two seconds.
std::function<void(std::string_view)> opening_progress(comm::Communicator& communicator);

}  // namespace trireme::train
