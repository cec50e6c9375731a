// Compares a run that resumes with the run that wrote its checkpoint. The effect of a changed
// configuration field is an option of the field (core/field_options.proto), listed in
// docs/resuming.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace trireme::train {

// The run that resumes.
struct ResumedRun {
  const Config& config;
  const model::Graph& graph;
  int ranks = 1;
  int64_t samples = 0;  // number of samples of an epoch
};

// Returns a line for each change that affects the rest of the training, with the checkpoint's value
// and the current one: "batch.global: 32 -> 64". Throws ConfigError naming all changes with which a
// run cannot resume.
std::vector<std::string> check_changes(const FoundCheckpoint& checkpoint, const ResumedRun& run);

// Returns "the data has changed since it was saved: " with the differences; empty if there are none
// that can be detected, since checkpoints of older versions do not record their data.
std::string describe_data_change(const CheckpointState& saved, const RunData& now);
// Returns the error to throw if the user has not accepted such a change.
DataError data_change_error(const FoundCheckpoint& checkpoint, const std::string& change);

}  // namespace trireme::train
