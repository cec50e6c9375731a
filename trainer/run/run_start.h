// Sets the initial state of a run: from a checkpoint, from the parameters of another model
// (model.init_from) or from random numbers. Rank 0 reads the files, since the other ranks may not
// see its disk, and broadcasts the state.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/config/config.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/train.h"

namespace trireme::train {

class RunStart {
 public:
  // All arguments must outlive this object.
  RunStart(const Config& config, comm::Communicator& communicator, const TrainOptions& options,
           RunParts& parts)
      : config_(config), communicator_(communicator), options_(options), parts_(parts) {}

  // Reads model.init_from, unless the run resumes. Returns the number of positions that it or the
  // checkpoint has, see stored_positions(). The network must have been built. Throws ConfigError
  // with the location in the configuration file. Only on rank 0.
  int64_t open_initial();
  // Finds the network's parameters in what open_initial() has read, if anything. Throws like it.
  void fit_initial();
  // Returns a description of what fit_initial() has found, for messages, or "".
  std::string initial() const { return initial_ ? initial_->summary : ""; }

  // Fills the step's arrays and sets the state of training. Requires a step and a reporter. Throws
  // if the run cannot resume from the checkpoint. Collective.
  void load();
  // Loads the best checkpoint of the run, at its end, and returns its position. If there is none,
  // because no evaluation gave a finite value, changes nothing and returns nullopt. Collective.
  std::optional<BestCheckpoint> load_best();
  // Returns the checkpoint in the run's folder that holds the initial state; nothing if the run
  // does not resume. Only on rank 0.
  const std::optional<std::filesystem::path>& saved() const { return saved_; }

 private:
  std::vector<std::filesystem::path> own_checkpoints() const;
  int64_t open_init_from();
  std::string load_on_rank_0();
  std::optional<FoundCheckpoint> choose_checkpoint() const;
  std::optional<FoundCheckpoint> checkpoint_of_path() const;
  void compare_data() const;
  void continue_from(FoundCheckpoint& checkpoint);
  std::optional<FoundCheckpoint> best_beside(const FoundCheckpoint& checkpoint) const;
  void keep_best(CheckpointState& state) const;
  void broadcast_arrays() const;
  void load_checkpoint(const FoundCheckpoint& checkpoint);
  void load_initial();
  void load_parts();
  void resume_from(const std::string& path, const std::string& state);
  void drop_invalid_best(CheckpointState& state) const;
  Checkpoints checkpoints() const { return {parts_.folder.checkpoints(), 1}; }
  void warn(const std::string& text) const { parts_.reporter->warn(text); }

  const Config& config_;
  comm::Communicator& communicator_;
  const TrainOptions& options_;
  RunParts& parts_;
  // Only on rank 0:
  std::optional<StoredModel> stored_;
  std::optional<InitialValues> initial_;
  std::optional<std::filesystem::path> saved_;
  // The distributed tensors to load, see StateArrays::put_parts.
  std::vector<std::string> parts_to_load_;
  StateArrays::Read read_part_;
};

// Throws AgreedError (kBadData) on all ranks if another host has a newer checkpoint in this folder
// than the host of rank 0, which reads and writes them: the hosts do not share the folder.
// Collective.
void require_newest_on_rank_0(comm::Communicator& communicator,
                              const std::filesystem::path& checkpoints);

}  // namespace trireme::train
