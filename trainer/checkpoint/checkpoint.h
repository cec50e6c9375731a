// Checkpoints of a run: folders checkpoints/step-00001200 that contain model.safetensors,
// optimizer.safetensors, state.json and manifest.json (size and XXH3 of each file). A checkpoint is
// written to a temporary folder and then renamed, so a folder with such a name is complete. The
// file `latest` contains the name of the newest checkpoint, `best` that of the best.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "model/weights.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/snapshot.h"

namespace trireme::model {
struct Graph;
}  // namespace trireme::model

namespace trireme::train {

using Warn = std::function<void(const std::string&)>;

// Files in a checkpoint's folder.
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// The open files of a checkpoint. They can be read even if the checkpoint is deleted meanwhile, as
// a run in progress deletes old ones.
struct CheckpointFiles {
  Descriptor model, optimizer, state, manifest;
  uint64_t checksum = 0;  // of all files
};

// A checkpoint whose files are undamaged.
struct FoundCheckpoint {
  std::filesystem::path path;
  CheckpointState state;
  std::shared_ptr<const CheckpointFiles> files = {};  // set by the functions that find checkpoints

  // Read the files. Throw DataError.
  SafetensorsReader model() const;
  SafetensorsReader optimizer() const;
};

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string problem = {};  // why `latest` or `best` could not be updated; empty if they were
};

// Returns the name of a checkpoint's folder: "step-00001200".
std::string checkpoint_name(int64_t step);

// The checkpoints of one run.
class Checkpoints {
 public:
  // Uses the checkpoints in `folder`, which need not exist yet. Keeps the newest `keep` checkpoints
  // and the best.
  Checkpoints(std::filesystem::path folder, int64_t keep);

  // Removes the temporary folders of interrupted saves. Requires that no save to the folder is in
  // progress.
  void clean() const;
  // Prepares the folder for training to continue from `checkpoint`, a folder in it with the state
  // of `step`. Checkpoints of later steps, which are damaged or abandoned, are renamed to
  // set-aside-step-N (or set-aside-step-N-2, ...), which other functions ignore; `warn` is called
  // for each. If `checkpoint` is not named after its step, it is renamed, and any checkpoint that
  // has this name is set aside, too. Updates `latest`. Returns the path of the checkpoint.
  std::filesystem::path continue_from(const std::filesystem::path& checkpoint, int64_t step,
                                      const Warn& warn) const;
  // Removes `best` and `latest`, before a run starts anew.
  void remove_pointers() const;
  // Returns the paths of all checkpoints, newest first, without opening them. Throws DataError if
  // the folder cannot be read.
  std::vector<std::filesystem::path> list() const;
  // Returns the step of the newest checkpoint by its name, -1 if there is none. Throws like list().
  int64_t newest_step() const;
  // Copies a checkpoint of another run and, if given, that of its best evaluation, which become
  // visible together. Requires that the folder has no checkpoints. Returns the path of the copy.
  // Throws Error if that fails.
  std::filesystem::path adopt(const FoundCheckpoint& checkpoint,
                              const std::optional<FoundCheckpoint>& best) const;
  // Makes `best` name the checkpoint of a step. Returns why that failed; empty on success.
  std::string set_best(int64_t step) const;
  // Saves a checkpoint. When this returns, it is complete on disk, and `latest` and `best` are
  // updated. Then deletes old checkpoints, except this one and the best; those that have files of
  // their own besides a checkpoint's are renamed to set-aside-step-N with these files. If the
  // checkpoint cannot be saved, or the folder is a symbolic link, throws Error and leaves the
  // others unchanged.
  SavedCheckpoint save(const CheckpointState& state, const Snapshot& snapshot,
                       std::stop_token stop = {}) const;

 private:
  // Deletes a folder of files of a checkpoint, if it exists. Sets aside one that has other files.
  void discard(const std::string& name) const;
  // Renames a checkpoint to set-aside-step-... Returns its new path.
  std::filesystem::path set_aside(const std::string& name) const;
  // Creates a temporary folder and calls work(its path), which fills and publishes it. If that
  // fails, removes the folder and throws Error.
  using Work = std::function<void(const std::filesystem::path&)>;
  void with_temporary(const std::string& name, const Work& work) const;
  void write_files(const std::filesystem::path& to, const CheckpointState& state,
                   const Snapshot& snapshot, const std::stop_token& stop) const;
  void publish(const std::filesystem::path& temporary, const std::string& name) const;
  // Writes the checkpoint's name to the file `pointer`. Returns why that failed; empty on success.
  std::string update_pointer(const char* pointer, const std::string& name) const;
  // Deletes old checkpoints, except those with these names.
  void remove_old(const std::vector<std::string>& exceptions) const;

  std::filesystem::path folder_;
  int64_t keep_;
};

// Opens a checkpoint. Verifies all files against the manifest, and the state against its valid
// ranges and the folder's name. Throws DataError naming the damaged file, and ConfigError if the
// checkpoint was written by a newer version.
FoundCheckpoint open_checkpoint(const std::filesystem::path& path);
// Returns the newest undamaged checkpoint in the folder, and calls `warn` for each damaged one that
// is newer, or missing although `latest` names it. Returns nullopt if there are no checkpoints.
// Throws DataError if all are damaged or missing, and ConfigError if one was written by a newer
// version.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& folder,
                                                 const Warn& warn);
// Returns the checkpoint that a user's path names: a checkpoint, `best` or `latest`, or the newest
// of a run or a folder of checkpoints. Throws DataError if there is no undamaged one.
FoundCheckpoint find_checkpoint(const std::filesystem::path& path, const Warn& warn);
// Like find_checkpoint, but returns the best checkpoint, not the newest, of a run that was trained
// with train.early_stopping; calls `warn` if it is missing, and returns the newest.
FoundCheckpoint find_for_inference(const std::filesystem::path& path, const Warn& warn);
// Returns whether the folder has a file that only checkpoints have, besides the model's.
bool has_checkpoint_file(const std::filesystem::path& folder);
// Prints "warning: ..." to stderr, for commands without a log.
void warn_on_stderr(const std::string& text);

// Loads parameters and running statistics; distributed tensors are only checked. Throws ConfigError
// if the checkpoint belongs to a different network.
void load_model(const FoundCheckpoint& checkpoint, const StateArrays& state);
// Returns the network's parameters, or their averages if the checkpoint has them, and its running
// statistics. Throws like load_model.
model::Weights read_model(const FoundCheckpoint& checkpoint, const model::Graph& graph);
// Replaces the parameters by their averages (optimizer.ema) if the checkpoint has them.
void use_averages(const FoundCheckpoint& checkpoint, model::Weights& weights);
// Loads the optimizer's state and the averages of the parameters. Arrays that the checkpoint does
// not have are not changed: the velocity if SGD had no momentum, and the averages if optimizer.ema
// was not set. Distributed tensors are only checked. Throws ConfigError if the checkpoint belongs
// to a different network or optimizer.
void load_optimizer(const FoundCheckpoint& checkpoint, const StateArrays& state);
// Returns the names of the distributed tensors for which the checkpoint has values, and a function
// that reads one. For StateArrays::put_parts().
std::vector<std::string> distributed_tensors(const FoundCheckpoint& checkpoint,
                                             const StateArrays& state);
StateArrays::Read reader_of(const FoundCheckpoint& checkpoint, const StateArrays& state);

}  // namespace trireme::train
