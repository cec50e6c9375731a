// Saves checkpoints during training, tracks the best one, and handles failed saves. Only rank 0
// writes and knows the outcome; if ranks have parts of the state, the others send them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/config.h"
#include "trainer/run/reporter.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

class CheckpointSaver {
 public:
  // `state` is the current state of training, updated by the run, except `best`, which is updated
  // here. All arguments must outlive the saver.
  CheckpointSaver(const RunConfig& config, comm::Communicator& communicator, Reporter& reporter,
                  CheckpointState& state, const StateArrays& arrays,
                  const Predictions& predictions);

  // Must be called on rank 0 before anything is saved. `newest` is the checkpoint in the run's
  // folder that the run resumes from, if any.
  void open(Checkpoints checkpoints, const std::optional<std::filesystem::path>& newest);

  // Compares an evaluation of the current state with the best so far. If it is better, is_best()
  // returns true until the next step, and the state should be saved. Collective.
  void update_best(const Evaluation& result);
  bool is_best() const { return best_at_ == state_.step; }

  // Starts a save, or reports that it was skipped if another one is in progress. If `wait` is set,
  // blocks until the save has ended; for tests. Collective.
  void save(bool wait);
  // Handles the outcome of a save that has ended. Must be called between steps.
  void poll();
  // Waits for a save in progress and saves the final state. Throws Error on rank 0 if that fails or
  // the disk hangs, or if an earlier save failed with checkpoint.on_error STOP. Collective.
  void save_final();
  // Returns whether a save has failed with checkpoint.on_error STOP, so that the run must stop.
  bool failed() const { return failure_.has_value(); }

 private:
  bool is_better(const Evaluation& result) const;
  bool decided_on_rank_0(bool starts) const;
  bool can_start();
  bool final_save_is_needed();
  void start();
  void handle_outcome(const SaveOutcome& outcome);
  bool record_success(const SaveOutcome& outcome);
  std::string describe_failure(const SaveOutcome& outcome) const;
  void warn_of_failure(const SaveOutcome& outcome, const std::string& consequence);

  const RunConfig& config_;
  comm::Communicator& communicator_;
  Reporter& reporter_;
  CheckpointState& state_;
  const StateArrays& arrays_;
  const std::string metric_;
  Evaluation best_;
  int64_t best_at_ = -1;  // the step of best_
  // Only on rank 0:
  std::unique_ptr<CheckpointWriter> writer_;
  int64_t saved_at_ = -1;
  std::filesystem::path newest_;        // complete checkpoint of this run
  std::string problem_;                 // with `latest` or `best`, already reported as a warning
  std::set<std::string> causes_;        // of failed saves, already reported as warnings
  int64_t failed_saves_ = 0;            // since the last that succeeded
  std::optional<std::string> failure_;  // why the run must stop
};

}  // namespace trireme::train
