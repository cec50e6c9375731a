// Samples that are images: decoded, transformed, perhaps kept.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/records.h"

namespace trireme {
class DataConfig;
}  // namespace trireme

namespace trireme::data {

// Of images in files. Their size must follow from the transforms or be what these make of the
// first one: another size is then a bad record. Throws ConfigError when transforms or cache cannot
// be followed, DataError when the first image that is needed to know their size cannot be read.
std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<Records> records,
                                            const DataConfig& config, Part part,
                                            const OpenOptions& options);

// Of images that are decoded already (u8 [C, H, W], channels-last). Throws ConfigError when the
// dataset holds something else.
std::unique_ptr<Dataset> with_transforms(std::unique_ptr<Dataset> dataset, const DataConfig& config,
                                         Part part, const OpenOptions& options);

}  // namespace trireme::data
