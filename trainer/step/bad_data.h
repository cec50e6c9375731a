// Samples that are bad or late, told for all ranks together; see data.on_bad_record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/bad_records.h"
#include "data/dataset.h"

namespace trireme::train {

// Throws AgreedError unless all ranks found as many samples, good and bad, in their files: each
// reads files of its own, and no two may train on different data. All ranks call it together.
void require_same_samples(comm::Communicator& communicator, const data::Dataset& training,
                          const data::Dataset& evaluation);

// What was left out when the files were opened. With data.holdout both parts are of the same files,
// and what is bad there counts once.
data::BadRecords bad_when_opened(const data::Dataset& training, const data::Dataset& evaluation,
                                 bool holdout);

// Samples of `expected` that no rank counted: left out by the loader of one.
int64_t left_out(int64_t expected, float counted);

// What each rank newly says of those: "rank 1: FILE: record 17: ...". All ranks call it together.
std::vector<std::string> gather_reasons(comm::Communicator& communicator,
                                        const std::vector<std::string>& own);

}  // namespace trireme::train
