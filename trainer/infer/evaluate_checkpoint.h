// Evaluates a saved model on the evaluation samples.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/report/sample_info.h"
#include "trainer/step/evaluator.h"

namespace trireme::train {

struct CheckpointEvaluation {
  Evaluation evaluation;
  CheckpointState state;
  std::vector<std::string> output_names;  // see data::output_names
  // Differences between the samples of `config` and those on which the checkpoint's run was
  // evaluated, as far as they are known (see changes()). Only on rank 0.
  std::vector<std::string> data_changes = {};
};

// Evaluates a checkpoint and returns its metrics. All ranks must call it together. `trained_on`
// must be set if the data of `config` is not that of the run; see data::with_training_classes.
// `with_details` adds scores of classes or outputs. `columns` are those of the table that the run
// was trained on; see data::OpenOptions. Throws ConfigError if the checkpoint belongs to another
// network.
CheckpointEvaluation evaluate_checkpoint(const Config& config, comm::Communicator& communicator,
                                         const FoundCheckpoint& checkpoint,
                                         const std::optional<SampleInfo>& trained_on = {},
                                         bool with_details = false,
                                         const data::TableColumns& columns = {});

}  // namespace trireme::train
