// Masked language modeling: samples whose labels are some of their own tokens (data.mask).
#pragma once

#include <cstdint>
#include <memory>

#include "data/dataset.h"

namespace trireme {
class MaskConfig;  // data/data.proto
}  // namespace trireme

namespace trireme::data {

// Returns a dataset of the same tokens in which some are replaced, and are the labels. `dataset`
// has a label for each token; kIgnoredLabel marks its padding, which is not chosen. Throws
// ConfigError if it has not, or if the configuration is invalid.
std::unique_ptr<Dataset> with_masks(std::unique_ptr<Dataset> dataset, const MaskConfig& config,
                                    uint64_t seed);

}  // namespace trireme::data
