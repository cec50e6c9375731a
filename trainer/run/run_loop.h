// The training loop: steps, evaluations and saves until the end of the run.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "trainer/config/config.pb.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/run_parts.h"
#include "trainer/run/run_stop.h"
#include "trainer/run/step_results.h"

namespace trireme::train {

struct LoopSettings {
  const TrainConfig& train;
  const CheckpointConfig& checkpoint;
  double spike_stddevs = 0;     // see LossSpikes
  bool wait_for_saves = false;  // see TrainOptions
};

class RunLoop {
 public:
  // `parts` must have been set up by RunSetup::prepare(). All arguments must outlive the loop.
  RunLoop(const LoopSettings& settings, comm::Communicator& communicator, RunStop& stop,
          RunParts& parts);

  // Returns whether training has reached its last step or epoch, or was stopped early.
  bool finished() const;
  // Returns why training was stopped early, for messages; empty if it was not.
  std::string why_early() const;

  // Trains until finished() or until any rank is asked to stop. Requires that
  // RunSetup::start_records() was called. This and the functions below are collective.
  void run();
  // Saves the final state. Throws Error if that fails.
  void save_final();
  // Returns whether the result of the run is its best checkpoint rather than the final state.
  bool ends_with_best() const;
  // Evaluates the result of the run: the `best` checkpoint, which must have been loaded, or the
  // final state if there is none.
  void evaluate_result(const std::optional<BestCheckpoint>& best);
  // Writes the final records and returns the summary.
  Summary end();

 private:
  bool stop_requested() const;
  bool evaluation_is_due() const;
  void step();
  const data::Batch& next_batch();
  void finish_steps();
  void after_step(bool epoch_done);
  void close_profile();
  void end_profile();
  void average_running_stats();
  void evaluate();
  void save();
  void prepare_to_save();
  Ending ending() const;
  std::string lost_folder() const;

  const LoopSettings settings_;
  comm::Communicator& communicator_;
  RunStop& stop_;
  RunParts& parts_;
  // Members of parts_.
  CheckpointState& state_;
  Step& step_;
  Reporter& reporter_;
  CheckpointSaver& saver_;

  StepResults results_;
  EarlyStopping early_stopping_;
  bool folder_lost_ = false;  // on rank 0, once it has warned that the run folder is gone
  int64_t averaged_at_;       // the step at which running statistics were last averaged
  int64_t evaluated_at_ = -1;
};

}  // namespace trireme::train
