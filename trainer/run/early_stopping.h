// Stops training when evaluations no longer improve (train.early_stopping).
#pragma once

#include <string>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/config/config.pb.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

class EarlyStopping {
 public:
  // Keeps its counts in `state`, which is the same on all ranks and saved in checkpoints. All
  // arguments must outlive this object.
  EarlyStopping(const TrainConfig& config, comm::Communicator& communicator,
                CheckpointState& state);

  // Returns whether early stopping is configured.
  bool configured() const { return state_.stopping.has_value(); }
  // Counts an evaluation at the state's step that was due by train.eval_every_*. Throws AgreedError
  // if it has not measured the metric. Collective.
  void count(const Evaluation& evaluation);
  // Returns whether training should end.
  bool should_stop() const;
  // Returns why, for messages: "loss has not been below 0.0312 in 5 evaluations since step 460".
  std::string reason() const;

 private:
  const EarlyStoppingConfig& config_;
  comm::Communicator& communicator_;
  CheckpointState& state_;
};

}  // namespace trireme::train
