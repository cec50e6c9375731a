// Labeled samples from outside a run's own data, to evaluate its network on (`trireme eval
// --data`).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::data {

// Returns the run's data configuration `config` with the samples replaced by those at `path`: a
// folder with a subfolder for each class, tar shards (a file, a pattern or a folder), a CSV file,
// labeled texts as in data.labeled_text.eval, or otherwise a data.root in the run's format. Throws
// ConfigError if the path does not exist or, for language models, is not such a folder.
DataConfig config_for_path(const DataConfig& config, const SampleSpec& spec,
                           const std::string& path);

// Returns the dataset as read by a network that was trained on samples of `spec` in classes named
// `class_names` (empty if they have no names). If both have class names, matches classes by name,
// so that the dataset may have fewer of them; names of tokens must be the same. Throws DataError if
// the samples have a different type or shape, or a class that the network does not know.
std::unique_ptr<Dataset> with_training_classes(std::unique_ptr<Dataset> dataset,
                                               const SampleSpec& spec,
                                               const std::vector<std::string>& class_names);

}  // namespace trireme::data
