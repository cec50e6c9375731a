// How well the network does on samples it was not trained on.
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
#include "trainer/step/class_scores.h"
#include "trainer/step/evaluation_details.h"
#include "trainer/step/regression_scores.h"

namespace trireme::train {

// Over all samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  EvaluationMetrics metrics = {};
  double seconds = 0;
  bool stopped = false;       // cut short: some rank was told to stop
  data::BadRecords bad = {};  // samples that could not be read; see data.on_bad_record
  // Where samples have one class each, of at most kMaxScoredClasses: of each output of the network.
  std::vector<ClassScores> classes = {};
  std::vector<OutputScores> outputs = {};  // of a regression
  // Where they were asked for, and samples have one class each.
  std::optional<EvaluationDetails> details = {};
};

class Evaluator {
 public:
  // Compiles for inference with `rows` rows at a time. `arrays` holds parameters and running
  // values; `activations` is memory that is used if it suffices. Everything outlives the evaluator.
  // `loading` is completed with the order and the size of batches.
  Evaluator(const model::Graph& graph, ops::Backend& backend, comm::Communicator& communicator,
            const data::Dataset& dataset, model::Parameters parameters,
            const model::ModelArrays& arrays, std::span<std::byte> activations, int64_t rows,
            const data::LoaderOptions& loading);
  ~Evaluator();

  // Every sample exactly once, each rank its share. All ranks call it together. `stop_requested` is
  // asked between batches.
  Evaluation run(const std::function<bool()>& stop_requested, bool with_details = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
