// Bad samples that all ranks must agree on; see data.on_bad_record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/bad_records.h"
#include "data/dataset.h"

namespace trireme::train {

// Throws AgreedError unless all ranks found the same numbers of good and bad samples in their
// files: each rank reads its own copy, and all must train on the same data. Collective.
void require_same_samples(comm::Communicator& communicator, const data::Dataset& training,
                          const data::Dataset& evaluation);

// Returns the records that were skipped when the files were opened. With data.holdout both datasets
// come from the same files, whose bad records count once.
data::BadRecords bad_records_at_open(const data::Dataset& training, const data::Dataset& evaluation,
                                     bool holdout);

// Returns how many of the `expected` samples of a global batch the loaders skipped, given the
// number that all ranks `counted`.
int64_t skipped_samples(int64_t expected, float counted);

// Throws AgreedError if all ranks together skipped more samples than `limit` (LoaderOptions::
// max_bad_records): `count` in an epoch, of which `first` describes one, and those that the dataset
// skipped when it was opened. All ranks must pass the same count.
void require_few_bad_samples(const data::Dataset& dataset, int64_t count,
                             std::optional<int64_t> limit, const std::string& first);

// Returns the reasons of all ranks, with their ranks: "rank 1: FILE: record 17: ...". Collective.
std::vector<std::string> gather_skip_reasons(comm::Communicator& communicator,
                                             const std::vector<std::string>& own);

}  // namespace trireme::train
