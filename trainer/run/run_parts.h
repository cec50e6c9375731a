// What a run consists of: RunSetup makes it, RunLoop trains with it.
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
#include "trainer/optimizer/course.h"
#include "trainer/profile/profiler.h"
#include "trainer/run/checks.h"
#include "trainer/run/illustrations.h"
#include "trainer/run/reporter.h"
#include "trainer/run/saver.h"
#include "trainer/step/evaluator.h"
#include "trainer/step/step.h"

namespace trireme::train {

// Each part may use those before it. Stays where it is.
struct RunParts {
  RunParts() = default;
  RunParts(const RunParts&) = delete;
  RunParts& operator=(const RunParts&) = delete;

  std::unique_ptr<Device> device;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<data::Dataset> training;
  std::unique_ptr<data::Dataset> evaluation;
  model::Graph graph;
  RunFolder folder;
  std::unique_ptr<RunLock> lock;  // on rank 0
  std::unique_ptr<Reporter> reporter;
  std::unique_ptr<Step> step;
  std::unique_ptr<Checks> checks;
  data::OrderOptions order;                                  // of the training samples
  std::unique_ptr<data::Mix> mix;                            // null: none
  std::shared_ptr<const std::vector<float>> sample_weights;  // see LoaderOptions
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<Profiler> profiler;  // null: not asked for
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<Course> course;
  std::unique_ptr<Illustrations> illustrations;  // null: nobody would see them
  std::optional<FoundCheckpoint> resumed;        // from which the run goes on
  CheckpointState state;                         // where training is
  std::unique_ptr<Saver> saver;
};

}  // namespace trireme::train
