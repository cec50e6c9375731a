// Samples without targets, from files that a user passes to `trireme predict`.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// Returns a run's `config` changed so that its evaluation transforms accept images of any size, in
// color or gray, and turn them into inputs of `spec`.
DataConfig config_for_any_image(DataConfig config, const SampleSpec& spec);

// Opens samples for a network that was trained on samples of `spec` with `config`. All targets are
// 0. `paths` are either images, folders (all images below them, in the order of their names) and
// tar files (all images, in their order); or tables: CSV, whose label columns are ignored, and .npy
// [N, ...]; or, with data.labeled_text, texts. `columns` are the columns of the training table.
// Throws DataError if a file does not exist, has no samples, or has samples of a different shape or
// different columns. A damaged tar file counts as a bad record.
std::unique_ptr<Dataset> open_unlabeled(std::span<const std::string> paths,
                                        const DataConfig& config, const SampleSpec& spec,
                                        const TableColumns& columns = {});

}  // namespace trireme::data
