// Whether evaluations still improve (train.early_stopping).
#pragma once

#include <string>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/config/config.pb.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

class EarlyStopping {
 public:
  // What it has counted is part of the state, which is the same on all ranks. Everything outlives
  // it.
  EarlyStopping(const TrainConfig& config, comm::Communicator& communicator,
                CheckpointState& state);

  // Whether it is configured.
  bool configured() const { return state_.stopping.has_value(); }
  // An evaluation at the state's step that train.eval_every_* asked for. All ranks call it
  // together.
  void count(const Evaluation& evaluation);
  // Whether training is to end.
  bool stops() const;
  // Why, for people: "loss has not been below 0.0312 (step 460) in 5 evaluations".
  std::string reason() const;

 private:
  const EarlyStoppingConfig& config_;
  comm::Communicator& communicator_;
  CheckpointState& state_;
};

}  // namespace trireme::train
