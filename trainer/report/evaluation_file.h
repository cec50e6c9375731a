// RUN/evaluation.json: what an evaluation has found, for programs and for `trireme report`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/step/evaluator.h"

namespace trireme::train {

// Outputs of a regression that are listed one by one.
inline constexpr size_t kMaxListedOutputs = 1000;

// Writes the file whole or not at all: an evaluation after `step` updates and `epoch` epochs of
// samples whose outputs have these names (see data::output_names). Throws Error.
void write_evaluation(const std::filesystem::path& file, const Evaluation& evaluation, int64_t step,
                      int64_t epoch, const std::vector<std::string>& names);

}  // namespace trireme::train
