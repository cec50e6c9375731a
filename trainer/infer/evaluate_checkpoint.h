// How well a saved model does.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/config/config.h"
#include "trainer/report/sample_facts.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

struct CheckpointEvaluation {
  Evaluation evaluation;
  CheckpointState state;
  std::vector<std::string> output_names;  // see data::output_names
  // How the samples of `config` differ from those that the checkpoint's run evaluated on, as far as
  // that is known: see changes(). On rank 0.
  std::vector<std::string> data_changes = {};
};

// Evaluates a saved model. `path` is a checkpoint, or a run's folder for its newest good one.
// `trained_on`: where the data of `config` is not that of the run, see with_training_classes. `columns`: of
// the table that the run was trained on, see OpenOptions. All ranks call it together. Throws
// ConfigError when the checkpoint is of another network.
CheckpointEvaluation evaluate_checkpoint(const Config& config, comm::Communicator& communicator,
                                         const std::string& path,
                                         const std::optional<SampleFacts>& trained_on = {},
                                         bool with_details = false,
                                         const data::TableColumns& columns = {});

}  // namespace trireme::train
