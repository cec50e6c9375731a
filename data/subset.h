// Part of a dataset.
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace trireme::data {

// Divides a dataset into what is trained on and what is evaluated on: round(fraction * size)
// samples, drawn by the seed, in the order that they had. Throws DataError when either would be
// empty.
std::unique_ptr<Dataset> make_subset(std::unique_ptr<Dataset> dataset, double fraction,
                                     uint64_t seed, Part part);

}  // namespace trireme::data
