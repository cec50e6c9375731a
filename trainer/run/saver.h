// What a run saves beside training, which of it is the best, and what a save that fails does to the
// run. Rank 0 writes, and alone knows what became of it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/config/config.h"
#include "trainer/run/reporter.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

class Saver {
 public:
  // `state` is where training is, kept up by the run, but for what it says of the best. Everything
  // outlives the saver.
  Saver(const RunConfig& config, comm::Communicator& communicator, Reporter& reporter,
        CheckpointState& state, bool classifies);

  // On rank 0, before anything is saved. `newest`: the checkpoint that the run goes on from, where
  // that is one of its own.
  void open(Checkpoints checkpoints, const StateArrays& arrays,
            const std::optional<std::filesystem::path>& newest);

  // Whether the evaluation just made is better than that of the checkpoint kept as the best, so
  // that where training is now is to be saved. All ranks call it together.
  void judge(const Evaluation& result);
  bool is_best() const { return best_at_ == state_.step; }

  // Begins a save, unless one is under way; `waits` for its end where tests want it.
  void save(bool waits);
  // Between steps: what has become of a save.
  void look_after();
  // Training has ended: waits for the save under way and saves where it has ended. Throws Error
  // when that fails or the disk hangs, or a save had failed that must not.
  void save_the_end();
  // Whether a save has failed for which the run is to stop.
  bool failed() const { return failure_.has_value(); }

 private:
  bool is_better(const Evaluation& result) const;
  void start();
  void settle(const SaveOutcome& outcome);
  bool note(const SaveOutcome& outcome);
  void finish();
  std::string describe_failure(const SaveOutcome& outcome) const;

  const RunConfig& config_;
  comm::Communicator& communicator_;
  Reporter& reporter_;
  CheckpointState& state_;
  const std::string metric_;
  Evaluation best_;
  int64_t best_at_ = -1;  // the step of that evaluation
  // On rank 0.
  std::unique_ptr<CheckpointWriter> writer_;
  int64_t saved_at_ = -1;
  std::filesystem::path newest_;        // checkpoint of this run that is good
  std::string problem_;                 // with `latest` or `best` that has been warned of
  std::optional<std::string> failure_;  // for which the run is to stop
};

}  // namespace trireme::train
