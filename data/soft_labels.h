// Class probabilities as targets, which can be mixed.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace trireme::data {

// Returns the dataset with its class labels (i32 []) converted to one-hot probabilities
// (f32 [classes]). Throws ConfigError ("data.mix: ...") if its targets are not class labels.
std::unique_ptr<Dataset> with_soft_labels(std::unique_ptr<Dataset> dataset);

}  // namespace trireme::data
