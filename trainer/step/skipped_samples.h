// Bad samples that all ranks must agree on; see data.on_bad_record.
#pragma once

#include <cstdint>
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

// Returns the reasons of all ranks, with their ranks: "rank 1: FILE: record 17: ...". Collective.
std::vector<std::string> gather_skip_reasons(comm::Communicator& communicator,
                                             const std::vector<std::string>& own);

}  // namespace trireme::train
