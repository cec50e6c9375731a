// How well the network does on samples it was not trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "comm/communicator.h"
#include "data/bad_records.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/config/monitor.h"
#include "trainer/step/evaluation_details.h"

namespace trireme::train {

// Means over all samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  double loss = 0;
  double accuracy = 0;  // top-1, a fraction; of no meaning in regression
  double top5 = 0;
  double seconds = 0;
  bool stopped = false;       // cut short: some rank was told to stop
  data::BadRecords bad = {};  // samples that could not be read; see data.on_bad_record
  // Where they were asked for, and samples have one class each.
  std::optional<EvaluationDetails> details = {};

  MetricValues values() const { return {{"loss", loss}, {"accuracy", accuracy}, {"top5", top5}}; }
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
  // asked between batches. Details cost a look at every sample's logits.
  Evaluation run(const std::function<bool()>& stop_requested, bool with_details = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::train
