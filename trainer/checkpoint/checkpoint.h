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
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/checkpoint/snapshot.h"

namespace trireme::model {
struct Graph;
}  // namespace trireme::model

namespace trireme::train {

using Warn = std::function<void(const std::string&)>;

// Of a checkpoint's folder.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string problem = {};  // why `latest` or `best` does not name it; empty: they do
};

class Checkpoints {
 public:
  // In `folder`, which need not exist yet; keeps the newest `keep` and the best.
  Checkpoints(std::filesystem::path folder, int64_t keep);

  // Removes what interrupted saves left behind. Whoever calls it is the only one to save here.
  void clean() const;
  // Training goes on from `checkpoint`, of `step` and in this folder: it gets the name of its step
  // where it has another, and `latest` names it. Those of later steps, damaged or of a future that
  // is given up, and one whose name it takes are renamed to set-aside-step-N, or with -2, -3, ...
  // after that where there is one already; they are not found any more, and each is warned of.
  // Returns its path.
  std::filesystem::path go_on_from(const std::filesystem::path& checkpoint, int64_t step,
                                   const Warn& warn) const;
  // Newest first; not looked into.
  std::vector<std::filesystem::path> list() const;
  // What `best` names, if it is there; not looked into.
  std::optional<std::filesystem::path> best() const;
  // Complete on disk when this returns, with `latest` naming it, and `best` the one of
  // state.best; throws Error otherwise, leaving the others as they were. Then deletes old
  // ones: never the one just saved nor the best, whatever their steps. Computes nothing in
  // parallel, so that a thread can do it beside training.
  SavedCheckpoint save(const CheckpointState& state, const Snapshot& snapshot,
                       std::stop_token stop = {}) const;

 private:
  // Returns its new path.
  std::filesystem::path set_aside(const std::filesystem::path& path) const;
  void write_files(const std::filesystem::path& to, const CheckpointState& state,
                   const Snapshot& snapshot, const std::stop_token& stop) const;
  void publish(const std::filesystem::path& temporary, const std::string& name) const;
  // Makes `pointer` name the checkpoint unless it does. Returns why it does not; empty: it does.
  std::string point(const char* pointer, const std::string& name) const;
  void remove_old(const std::vector<std::string>& spared) const;

  std::filesystem::path folder_;
  int64_t keep_;
};

struct FoundCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
};

// Checks every file against the manifest, and the state against its ranges and the folder's name.
// Throws DataError naming what is damaged, and ConfigError for one of a newer version, which is not
// passed over below.
FoundCheckpoint open_checkpoint(const std::filesystem::path& path);
// The newest good one among a run's checkpoints; each damaged one on the way is reported. Nothing
// when there are none; throws DataError when there are some and all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& folder,
                                                 const Warn& warn);
// What a user's path means: a checkpoint, `best` or `latest`, a folder of checkpoints, or a run.
// Throws DataError when nothing good is there.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path, const Warn& warn);
// The same for who wants what was learned: of a run, or a folder of checkpoints, that was trained
// with train.early_stopping it is the best, not the newest.
FoundCheckpoint find_trained(const std::filesystem::path& path, const Warn& warn);
// For commands without a log: "warning: ..." on stderr.
void warn_on_stderr(const std::string& text);

// Fill the arrays. Throws ConfigError when the checkpoint is of another network or optimizer.
void load_model(const FoundCheckpoint& checkpoint, const StateArrays& state);
// The network's parameters, or their averages, and running values by name; throws as load_model
// does.
model::Weights read_model(const FoundCheckpoint& checkpoint, const model::Graph& graph);
// Puts the averages of the parameters in their place, where the checkpoint has such
// (optimizer.ema).
void use_averages(const FoundCheckpoint& checkpoint, model::Weights& weights);
// The optimizer's state, and averages of the parameters. What the checkpoint has none of stays as
// it is: the velocity where SGD had no momentum, and averages that begin now.
void load_optimizer(const FoundCheckpoint& checkpoint, const StateArrays& state);

}  // namespace trireme::train
