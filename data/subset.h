// The split of a dataset into training and held-out samples (data.holdout).
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace trireme::data {

// Returns the training or the evaluation part of a dataset. The evaluation part has round(fraction
// * size) samples, drawn with `seed`; the training part has the others. Both preserve the order of
// the samples. Throws DataError if either part would be empty.
std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> dataset, double fraction,
                                     uint64_t seed, Part part);

}  // namespace trireme::data
