// A dataset whose records are NumPy arrays (.npy).
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/records.h"

namespace trireme::data {

// Returns true if the first record is a NumPy array.
bool holds_arrays(const Records& records);

// Returns a dataset of arrays that all have the type and shape of the first one; an array that
// differs is a bad record. u8 inputs are scaled by 1/255. Throws DataError if the first array
// cannot be a sample, see sample_spec.
std::unique_ptr<Dataset> make_array_dataset(std::unique_ptr<Records> records);

}  // namespace trireme::data
