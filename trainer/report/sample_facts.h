// What the samples of a run were: RUN/samples.json, so that its network can be used where its data
// is not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace trireme::train {

struct Config;

struct SampleFacts {
  data::SampleSpec spec;                 // as the network was trained with
  std::vector<std::string> class_names;  // empty where classes have none
  data::TableColumns columns;            // of the training table; count 0: it was none
};

SampleFacts facts_of(const data::Dataset& dataset);
// Throws Error.
void write_sample_facts(const std::filesystem::path& run_folder, const SampleFacts& facts);
// Of a run whose folder holds none, from its data. Throws DataError naming the file.
SampleFacts read_sample_facts(const std::filesystem::path& run_folder, const Config& config);

}  // namespace trireme::train
