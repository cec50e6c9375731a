// The state of a run that is saved in state.json of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/fingerprint.h"
#include "ops/loss_scale.h"

namespace trireme::train {

// Fingerprints of the samples of a run.
struct RunData {
  data::Fingerprint training;
  data::Fingerprint evaluation;
  bool operator==(const RunData&) const = default;
};

// The evaluation of the checkpoint that `best` names.
struct BestEvaluation {
  std::string metric;  // see best_metric
  double value = 0;
  int64_t step = 0;
};

// The counters of train.early_stopping.
struct EarlyStoppingState {
  std::string metric;
  std::optional<double> best;  // the last value that improved on the previous best by min_delta
  int64_t best_step = 0;       // the step of `best`
  int64_t waited = 0;          // evaluations since `best`
  int64_t counted_at = -1;     // the step of the last evaluation that was counted
};

// The contents of state.json.
struct CheckpointState {
  int64_t step = 0;      // updates done
  int64_t epoch = 0;     // epochs completed
  int64_t position = 0;  // samples of the current epoch that were used
  uint64_t seed = 0;
  std::string config;         // the configuration as text; empty in checkpoints of version 0.1
  std::string config_hash;    // see config_hash()
  int ranks = 1;              // ranks of the run that wrote it; any number can resume
  double epoch_loss_sum = 0;  // over the samples of the current epoch
  double epoch_weight = 0;    // total weight of these samples, the denominator of their mean loss
  std::optional<BestEvaluation> best;
  std::optional<EarlyStoppingState> stopping;  // if train.early_stopping is set
  // An evaluation at this step is due, because a signal stopped the run before it.
  bool evaluation_due = false;
  std::optional<ops::LossScale> loss_scale;  // with FP16
  std::optional<RunData> data;               // not in checkpoints of older versions

  bool is_best() const { return best && best->step == step; }
};

std::string to_json(const CheckpointState& state);
// Parses state.json; `file` is its name in messages. Throws DataError naming the field if one is
// missing, has the wrong type or is out of range, and ConfigError if a newer version wrote it.
CheckpointState state_from_json(const std::string& text, const std::string& file);

// Returns the error to throw if a file of a checkpoint has a format above the newest that is known.
ConfigError newer_format_error(const std::string& file, const std::string& format, int newest);

// Returns a human-readable line for each difference between the fingerprints: "training samples:
// 1797 -> 900".
std::vector<std::string> changes(const RunData& before, const RunData& now);

}  // namespace trireme::train
