// Samples without targets, from whatever a user points at, for a trained network to tell.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// The run's transforms of evaluation for pictures that need not be as large, or as colourful, as
// those that it was trained on: they become what `spec` reads.
DataConfig for_any_picture(DataConfig config, const SampleSpec& spec);

// As the network that was trained on samples of `spec` with `config` reads them; all targets are 0.
// `paths` are pictures, folders (all pictures below, in the order of their names) and tar files
// (all pictures, in their order), or else tables: CSV, whose label columns are passed over, and
// .npy [N, ...]. `columns` are those of the table that the network was trained on. Throws DataError
// when a file is not there, has no samples, none of that kind, or other columns. A tar that is
// damaged is a bad record.
std::unique_ptr<Dataset> open_unlabelled(std::span<const std::string> paths,
                                         const DataConfig& config, const SampleSpec& spec,
                                         const TableColumns& columns = {});

}  // namespace trireme::data
