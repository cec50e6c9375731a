// Other samples for a network than those of its run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// What a path holds that is given in place of a run's data: a folder with one for each class, tar
// shards (a file, a pattern or a folder of them), a CSV file, or else the root of the run's format.
DataConfig other_data(const DataConfig& config, const SampleSpec& spec, const std::string& path);

// The samples as a network reads them that was trained on samples of `spec` in classes of these
// names (empty: they have none). Where both have names, classes are found by them, so that there
// may be fewer here. Throws DataError when the samples are of another kind, or of a class that the
// network does not know.
std::unique_ptr<Dataset> as_trained_on(std::unique_ptr<Dataset> dataset, const SampleSpec& spec,
                                       const std::vector<std::string>& class_names);

}  // namespace trireme::data
