// Datasets of images: decoding, transforms and caching.
#pragma once

#include <memory>

#include "data/dataset.h"
#include "data/records.h"

namespace trireme {
class DataConfig;
}  // namespace trireme

namespace trireme::data {

// Returns a dataset of encoded images. The size of the samples follows from the transforms or, if
// they do not determine it, from the first image; an image that ends up with a different size is a
// bad record. Throws ConfigError if the transforms or the cache are invalid, and DataError if the
// first image is needed and cannot be read.
std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<Records> records,
                                            const DataConfig& config, Part part,
                                            const OpenOptions& options);

// Returns `dataset`, whose samples are decoded images (u8 [C, H, W], channels-last), with the
// transforms of `config` applied. Throws ConfigError if its samples are not such images, or if a
// transform moves objects in images whose targets are not class labels and would not follow.
std::unique_ptr<Dataset> with_transforms(std::unique_ptr<Dataset> dataset, const DataConfig& config,
                                         Part part, const OpenOptions& options);

}  // namespace trireme::data
