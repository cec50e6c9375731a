// The loop of a run: steps, evaluation, saves, to its end.
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
  double spike_deviations = 0;  // see LossSpikes
  bool wait_for_saves = false;  // see TrainOptions
};

class RunLoop {
 public:
  // `parts` are as RunSetup::prepare() leaves them. Everything outlives it.
  RunLoop(const LoopSettings& settings, comm::Communicator& communicator, RunStop& stop,
          RunParts& parts);

  // Whether training has come to the run's last step or epoch, or is stopped early.
  bool finished() const;
  // Why, for people, where it is stopped early; else empty.
  std::string why_early() const;

  // Trains until then or until some rank is told to stop. Comes after RunSetup::start_records().
  // All ranks call it together, here and below.
  void run();
  // Saves where training has ended. Throws Error where that fails.
  void save_the_end();
  // Whether the run's result is its best checkpoint rather than where training has ended.
  bool ends_with_best() const;
  // Once that is loaded, which is of this step and epoch.
  void evaluate_best(int64_t step, int64_t epoch);
  // Ends the records.
  Summary end();

 private:
  bool told_to_stop() const;
  bool evaluation_is_due() const;
  void step();
  const data::Batch& next_batch();
  void finish_steps();
  void after_step(bool epoch_done);
  void close_profile();
  void end_profile();
  void average_running_values();
  void evaluate();
  void write_details(const Evaluation& evaluation, int64_t step, int64_t epoch);
  void save();
  void prepare_to_save();
  std::string lost_folder() const;

  const LoopSettings settings_;
  comm::Communicator& communicator_;
  RunStop& stop_;
  RunParts& parts_;
  CheckpointState& state_;  // of the parts, as all below
  Step& step_;
  Reporter& reporter_;
  Saver& saver_;
  StepResults results_;
  EarlyStopping early_stopping_;
  bool folder_lost_ = false;  // on rank 0, which has warned of it
  int64_t averaged_at_;       // the step at which running values were last averaged
  int64_t evaluated_at_ = -1;
};

}  // namespace trireme::train
