// Evaluates the network on a dataset: loss, metrics and optional details.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "data/bad_records.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/base/evaluation_metrics.h"
#include "trainer/step/batch_plan.h"
#include "trainer/step/class_scores.h"
#include "trainer/step/evaluation_details.h"
#include "trainer/step/regression_scores.h"
#include "trainer/step/stage_links.h"

namespace trireme::train {

// The result of an evaluation, over the samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  EvaluationMetrics metrics = {};
  double seconds = 0;
  bool stopped = false;                    // interrupted, because some rank was asked to stop
  data::BadRecords bad = {};               // samples that could not be read; see data.on_bad_record
  std::vector<ClassScores> classes = {};   // by network output; empty unless ClassCounts applies
  std::vector<OutputScores> outputs = {};  // scores of a regression; otherwise empty
  // Set if details were requested and samples have one class each.
  std::optional<EvaluationDetails> details = {};
};

class Evaluator {
 public:
  // Compiles the network for inference on plan.micro rows at a time. Measures the metrics that are
  // for these `predictions` of the samples. With plan.has_streams, samples
  // are divided into as many streams as a batch of the plan has rows, whatever the number of ranks,
  // and stateful layers carry their states from batch to batch. `arrays` holds the parameters and
  // running statistics. `activations` is used as workspace if it is large enough; otherwise the
  // evaluator allocates its own. Sets the batch size in `loading` itself; its order must have every
  // sample once. `shorter` are the same network for samples of fewer tokens, see
  // data::Batch::length. With `stage`, each rank computes its pipeline stage, the program of which
  // must have been compiled with `parameters`; all ranks must then use the evaluator together. All
  // arguments passed by reference must outlive the evaluator.
  Evaluator(const model::Graph& graph, ops::Backend& backend, comm::Communicator& communicator,
            const data::Dataset& dataset, const Predictions& predictions,
            model::Parameters parameters, const model::ModelArrays& arrays,
            std::span<std::byte> activations, const BatchPlan& plan,
            const data::LoaderOptions& loading, const PipelineStage& stage = {},
            std::span<const model::Graph> shorter = {});
  ~Evaluator();

  // Evaluates every sample exactly once, split over the ranks. Checks `stop_requested` between
  // batches; if it returns true on any rank, all ranks return early with `stopped` set. Collective.
  Evaluation run(const std::function<bool()>& stop_requested, bool with_details = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
