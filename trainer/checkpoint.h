// Checkpoints of a run: folders checkpoints/step-00001200 with model.safetensors,
// optimizer.safetensors, state.json and manifest.json (size and XXH3 of each). A folder of that
// name is complete, because it is written under another name and renamed; `latest` names the
// newest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme {

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
  std::optional<double> best_accuracy;
  int64_t best_step = 0;
  std::optional<LossScale> loss_scale;  // of FP16
};

std::string to_json(const CheckpointState& state);
// Throws DataError when something is missing.
CheckpointState state_from_json(const std::string& text, const std::string& file);

// The arrays that a checkpoint is taken of, in device memory; see Parameters.
struct TrainedArrays {
  const Parameters& parameters;
  Backend& backend;
  void* values;
  void* running;
  struct Named {
    std::string name;  // "velocity": saved as "velocity.<parameter>"
    void* values;
  };
  std::vector<Named> optimizer;
};

using Warn = std::function<void(const std::string&)>;

class Checkpoints {
 public:
  // In `folder`, which need not exist yet; keeps the newest `keep`.
  Checkpoints(std::filesystem::path folder, int64_t keep);

  // Removes what interrupted saves left behind.
  void clean() const;
  // Renames those of later steps, damaged or of a future that is given up, to set-aside-step-N:
  // training from `step` on must not find them.
  void set_aside_after(int64_t step) const;
  // Newest first; not looked into.
  std::vector<std::filesystem::path> list() const;
  // Complete on disk when this returns; throws Error otherwise, leaving the others as they were.
  std::filesystem::path save(const CheckpointState& state, const TrainedArrays& arrays) const;

 private:
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
// What a user's path means: a checkpoint, a folder of checkpoints, or a run. Throws DataError when
// nothing good is there.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path, const Warn& warn);

// Fill the arrays. Throws ConfigError when the checkpoint is of another network or optimizer.
void load_model(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays);
void load_optimizer(const FoundCheckpoint& checkpoint, const TrainedArrays& arrays);

}  // namespace trireme
