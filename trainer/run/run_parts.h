// The components of a run. RunSetup creates them, RunLoop trains with them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/mix.h"
#include "model/graph.h"
#include "ops/backend.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/run_folder.h"
#include "trainer/optimizer/training_plan.h"
#include "trainer/profile/profiler.h"
#include "trainer/run/checkpoint_saver.h"
#include "trainer/run/checks.h"
#include "trainer/run/reporter.h"
#include "trainer/run/step_work.h"
#include "trainer/run/tensorboard_media.h"
#include "trainer/step/evaluator.h"
#include "trainer/step/step.h"

namespace trireme::train {

// Each part may refer to those before it. Not copyable or movable.
struct RunParts {
  RunParts() = default;
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<data::Dataset> training;
  std::unique_ptr<data::Dataset> evaluation;
  Predictions predictions;
  std::optional<RunData> data;  // fingerprints of both, only on rank 0
  model::Graph graph;
  std::vector<model::Graph> shorter;  // networks for shorter samples (data.length_buckets)
  RunFolder folder;
  std::unique_ptr<RunLock> lock;  // only on rank 0
  std::unique_ptr<Reporter> reporter;
  std::unique_ptr<Step> step;
  std::unique_ptr<StepWork> work;
  std::unique_ptr<Checks> checks;
  data::OrderOptions order;        // of the training samples
  std::unique_ptr<data::Mix> mix;  // null if not configured
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<Profiler> profiler;  // null unless --profile was given
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<TrainingPlan> plan;
  std::unique_ptr<TensorBoardMedia> tensorboard_media;  // null unless metrics.tensorboard is set
  std::optional<FoundCheckpoint> resumed;               // the checkpoint that the run resumes from
  CheckpointState state;                                // the current state of training
  std::unique_ptr<CheckpointSaver> saver;
};

}  // namespace trireme::train
