// Samples that are arrays in files (.npy).
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/records.h"

namespace trireme::data {

// Whether the first record is one.
bool holds_arrays(const Records& records);

// Arrays of one type and shape, which the first one has: another is a bad record. Throws DataError
// when that is none that a sample can have, see sample_spec. Bytes are scaled by 1/255.
std::unique_ptr<Dataset> make_array_dataset(std::unique_ptr<Records> records);

}  // namespace trireme::data
