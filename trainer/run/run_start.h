// What a run begins from: a checkpoint, values of another model, or random numbers. Rank 0 reads,
// since others may see no disk of its; then all hold the same.
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

// Where training was when it was saved.
struct SavedPosition {
  int64_t step = 0;
  int64_t epoch = 0;
};

class RunStart {
 public:
  // Everything outlives it.
  RunStart(const Config& config, comm::Communicator& communicator, const TrainOptions& options,
           RunParts& parts)
      : config_(config), communicator_(communicator), options_(options), parts_(parts) {}

  // Reads model.init_from, by rank 0, once there is a network. A run that goes on needs no values
  // to begin with. Throws ConfigError, placed in the configuration file.
  void read_initial();
  // What read_initial() has read, for people; empty: nothing.
  std::string initial() const { return initial_ ? initial_->summary : ""; }

  // Fills the step's arrays and sets where training is, once there are a step and a reporter. All
  // ranks call it together. Throws where the checkpoint cannot be gone on from.
  void load();
  // The same with the run's best checkpoint, at its end. Where there is none, which is when no
  // evaluation had a value that can be compared, all stays as it is.
  SavedPosition load_best();
  // Whether the run goes on from a checkpoint of its own folder. On rank 0.
  bool resumes_here() const;

 private:
  bool has_saved() const;
  std::string load_by_rank_0();
  std::optional<FoundCheckpoint> choose_checkpoint() const;
  FoundCheckpoint checkpoint_of_path(bool has_own) const;
  bool is_own(const FoundCheckpoint& checkpoint) const;
  void compare_data() const;
  void broadcast_arrays() const;
  void go_on(const std::string& path, const std::string& state);
  void forget_lost_best(CheckpointState& state) const;
  void warn(const std::string& text) const { parts_.reporter->warn(text); }

  const Config& config_;
  comm::Communicator& communicator_;
  const TrainOptions& options_;
  RunParts& parts_;
  // On rank 0:
  std::optional<InitialValues> initial_;
  std::optional<RunData> data_;
};

}  // namespace trireme::train
