// RUN/evaluation.json: the results of the latest evaluation, read by `trireme report` and by other
// programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/step/evaluator.h"

namespace trireme::train {

// Maximum number of regression outputs that are listed individually.
inline constexpr size_t kMaxListedOutputs = 1000;

// Writes an evaluation done after `step` updates and `epoch` epochs, replacing the file atomically.
// `names` are the names of the model's outputs (see data::output_names). Throws Error if the file
// cannot be written.
void write_evaluation(const std::filesystem::path& file, const Evaluation& evaluation, int64_t step,
                      int64_t epoch, const std::vector<std::string>& names);

}  // namespace trireme::train
