// RUN/samples.json: the format of the samples that a run was trained on, so that its model can be
// used on machines that do not have the data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::train {

struct Config;

struct SampleInfo {
  data::SampleSpec spec;                 // spec of the training samples
  std::vector<std::string> class_names;  // empty if the classes have no names
  data::TableColumns columns;            // columns of the training table; count 0 for other data
  // Tokenizer of the samples; null if there is none. Its files are in RUN/tokenizer.
  std::shared_ptr<const data::Tokenizer> tokenizer;
};

SampleInfo sample_info_of(const data::Dataset& dataset);
// Throws Error if the file cannot be written.
void write_sample_info(const std::filesystem::path& run_folder, const SampleInfo& info);
// Reads the file, or opens the run's data if the folder has no such file. Throws DataError, which
// names the file, if it is damaged, or if RUN/tokenizer is not the tokenizer of the run.
SampleInfo read_sample_info(const std::filesystem::path& run_folder, const Config& config);

// Sets the tokenizer of `config`, the data of other samples than the run's, to that in
// RUN/tokenizer, if the run has one. Also sets the root of labeled texts, to which the other paths
// must then not be relative.
void use_run_tokenizer(const std::filesystem::path& run_folder, const SampleInfo& info,
                       DataConfig& config);

}  // namespace trireme::train
