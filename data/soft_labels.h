// Labels as probabilities of classes, which can be mixed.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace trireme::data {

// The targets of the dataset's samples, i32 [], become f32 [classes]: 1 for the label, else 0.
// Throws ConfigError ("data.mix: ...") when they are no labels.
std::unique_ptr<Dataset> with_soft_labels(std::unique_ptr<Dataset> dataset);

}  // namespace trireme::data
