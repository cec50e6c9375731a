// Checkpoints of a run: folders checkpoints/step-00001200 with model.safetensors,
// optimizer.safetensors, state.json and manifest.json (size and XXH3 of each). A folder of that
// name is complete, because it is written under another name and renamed; `latest` names the
// newest, `best` the best.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "model/weights.h"
#include "ops/loss_scale.h"
#include "trainer/snapshot.h"

namespace trireme {

struct Graph;

// Where training is, and what came with it.
struct CheckpointState {
  int64_t step = 0;      // updates done
  int64_t epoch = 0;     // epochs completed
  int64_t position = 0;  // samples of the current epoch that were used
  uint64_t seed = 0;
  std::string config_hash;
  int ranks = 1;              // that wrote it; any number can go on
  double epoch_loss_sum = 0;  // over the samples of the current epoch
  int64_t epoch_samples = 0;
  // Of the checkpoint that `best` names, in regression the loss.
  std::optional<double> best_accuracy;
  std::optional<double> best_loss;
  int64_t best_step = 0;
  bool evaluation_due = false;          // at this step, which a signal has kept from coming to it
  std::optional<LossScale> loss_scale;  // of FP16
};

std::string to_json(const CheckpointState& state);
// Throws DataError when something is missing.
CheckpointState state_from_json(const std::string& text, const std::string& file);

using Warn = std::function<void(const std::string&)>;

class Checkpoints {
 public:
  // In `folder`, which need not exist yet; keeps the newest `keep` and the best.
  Checkpoints(std::filesystem::path folder, int64_t keep);

  // Removes what interrupted saves left behind. Whoever calls it is the only one to save here.
  void clean() const;
  // Training goes on from that of `step`: `latest` names it, and those of later steps, damaged or
  // of a future that is given up, are renamed to set-aside-step-N and not found any more.
  void go_on_from(int64_t step) const;
  // Newest first; not looked into.
  std::vector<std::filesystem::path> list() const;
  // What `best` names, if it is there; not looked into.
  std::optional<std::filesystem::path> best() const;
  // Complete on disk when this returns, with `best` naming it if it is the best; throws Error
  // otherwise, leaving the others as they were. Computes nothing in parallel, so that a thread can
  // do it beside training.
  std::filesystem::path save(const CheckpointState& state, const Snapshot& snapshot, bool best,
                             std::stop_token stop = {}) const;

 private:
  void write_files(const std::filesystem::path& to, const CheckpointState& state,
                   const Snapshot& snapshot, const std::stop_token& stop) const;
  void publish(const std::filesystem::path& temporary, const std::string& name, bool best) const;
  void remove_old() const;

  std::filesystem::path folder_;
  int64_t keep_;
};

struct FoundCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};

// Checks every file against the manifest. Throws DataError naming what is damaged.
FoundCheckpoint open_checkpoint(const std::filesystem::path& path);
// The newest good one among a run's checkpoints; each damaged one on the way is reported. Nothing
// when there are none; throws DataError when there are some and all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& folder,
                                                 const Warn& warn);
// What a user's path means: a checkpoint, `best` or `latest`, a folder of checkpoints, or a run.
// Throws DataError when nothing good is there.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path, const Warn& warn);

// Fill the arrays. Throws ConfigError when the checkpoint is of another network or optimizer.
void load_model(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays);
// The network's parameters and running values by name; throws as load_model does.
Weights read_model(const FoundCheckpoint& checkpoint, const Graph& graph);
void load_optimizer(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays);

}  // namespace trireme
