// The split of a dataset into training and held-out samples (data.holdout).
#pragma once

#include <memory>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// Returns the training or the evaluation part of a dataset. The evaluation part has round(holdout *
// size) samples, drawn with holdout_seed, or about as many with holdout_stratified; the training
// part has the others. Both preserve the order of the samples. Throws DataError if either part
// would be empty, and ConfigError with holdout_stratified if samples do not have one label each.
std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> dataset, const DataConfig& config,
                                     Part part);

}  // namespace trireme::data
