// Compares a run that resumes with the run that wrote its checkpoint. What a changed field does is
// an option of the field (core/on_resume.proto); docs/resuming.md lists them all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace trireme::train {

// The run that resumes. Everything outlives the comparison.
struct ResumingRun {
  const Config& config;
  const model::Graph& graph;
  int ranks = 1;
  int64_t samples = 0;  // of an epoch
};

// Lines for people that name each change on which the rest of the training depends, with the value
// of the checkpoint and the present one: "batch.global: 32 -> 64". Empty: there is none. Throws
// ConfigError that names every change that is refused.
std::vector<std::string> check_changes(const FoundCheckpoint& checkpoint, const ResumingRun& run);

// "the data is not what it was saved from: ", and how it differs; empty: not as far as the
// checkpoint tells, which says nothing where its state has no data.
std::string data_change(const CheckpointState& saved, const RunData& now);
// What becomes of such a change unless it is accepted.
DataError data_refusal(const FoundCheckpoint& checkpoint, const std::string& change);

}  // namespace trireme::train
