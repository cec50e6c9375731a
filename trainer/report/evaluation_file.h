// RUN/evaluation.json: what an evaluation has found, for programs and for `trireme report`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/step/evaluator.h"

namespace trireme::train {

// Writes the file whole or not at all: an evaluation after `step` updates and `epoch` epochs of
// samples whose classes have these names. Throws Error.
void write_evaluation(const std::filesystem::path& file, const Evaluation& evaluation, int64_t step,
                      int64_t epoch, const std::vector<std::string>& class_names);

}  // namespace trireme::train
