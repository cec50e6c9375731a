// state.json of a checkpoint: where training is, and what came with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/fingerprint.h"
#include "ops/loss_scale.h"

namespace trireme::train {

// What a run trains and evaluates on.
struct RunData {
  data::Fingerprint training;
  data::Fingerprint evaluation;
  bool operator==(const RunData&) const = default;
};

// Of the checkpoint that `best` names.
struct BestEvaluation {
  std::string metric;  // see best_metric
  double value = 0;
  int64_t step = 0;
};

// What train.early_stopping has counted.
struct Stopping {
  std::string metric;
  std::optional<double> best;  // the latest value that was better than the best before by min_delta
  int64_t best_step = 0;       // of it
  int64_t waited = 0;          // evaluations since
  int64_t counted_at = -1;     // the step of the latest evaluation
};

struct CheckpointState {
  int64_t step = 0;      // updates done
  int64_t epoch = 0;     // epochs completed
  int64_t position = 0;  // samples of the current epoch that were used
  uint64_t seed = 0;
  std::string config;         // that it was written with, as text; empty in those of version 0.1
  std::string config_hash;    // of it
  int ranks = 1;              // that wrote it; any number can go on
  double epoch_loss_sum = 0;  // over the samples of the current epoch
  double epoch_weight = 0;    // of these: what their mean loss divides by
  std::optional<BestEvaluation> best;
  std::optional<Stopping> stopping;  // where it is configured
  bool evaluation_due = false;       // at this step, which a signal has kept from coming to it
  std::optional<ops::LossScale> loss_scale;  // of FP16
  std::optional<RunData> data;               // not in checkpoints of older versions

  bool is_best() const { return best && best->step == step; }
};

std::string to_json(const CheckpointState& state);
// Throws DataError naming the file and the field when one is missing, of another type or out of
// its range, and ConfigError where a newer version has written it.
CheckpointState state_from_json(const std::string& text, const std::string& file);

// What has changed, for people, old -> new: "training samples: 1797 -> 900". Empty: nothing that
// the fingerprints see.
std::vector<std::string> changes(const RunData& before, const RunData& now);

}  // namespace trireme::train
