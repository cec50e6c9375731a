// Samples without targets, from whatever a user points at, for a trained network to tell.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// The run's transforms of evaluation for images that need not be as large, or as colorful, as
// those that it was trained on: they become what `spec` reads.
DataConfig for_any_image(DataConfig config, const SampleSpec& spec);

// As the network that was trained on samples of `spec` with `config` reads them; all targets are 0.
// `paths` are images, folders (all images below, in the order of their names) and tar files
// (all images, in their order), or else tables: CSV, whose label columns are passed over, and
// .npy [N, ...]. `columns` are those of the table that the network was trained on. Throws DataError
// when a file is not there, has no samples, none of that kind, or other columns. A tar that is
// damaged is a bad record.
std::unique_ptr<Dataset> open_unlabeled(std::span<const std::string> paths,
                                        const DataConfig& config, const SampleSpec& spec,
                                        const TableColumns& columns = {});

}  // namespace trireme::data
