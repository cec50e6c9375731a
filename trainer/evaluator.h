// How well the network does on samples it was not trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "data/bad_records.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/context.h"
#include "trainer/checkpoint.h"
#include "trainer/config.h"
#include "trainer/evaluation_details.h"
#include "trainer/sample_facts.h"

namespace trireme {

// Means over all samples of all ranks.
struct Evaluation {
  int64_t samples = 0;
  double loss = 0;
  double accuracy = 0;  // top-1, a fraction; of no meaning in regression
  double top5 = 0;
  double seconds = 0;
  bool stopped = false;  // cut short: some rank was told to stop
  BadRecords bad = {};   // samples that could not be read; see data.on_bad_record
  // Where they were asked for, and samples have one class each.
  std::optional<EvaluationDetails> details = {};
};

class Evaluator {
 public:
  // Compiles for inference with `rows` rows at a time. `arrays` holds parameters and running
  // values; `activations` is memory that is used if it suffices. Everything outlives the evaluator.
  // `loading` is completed with the order and the size of batches.
  Evaluator(const Graph& graph, Backend& backend, Communicator& communicator,
            const Dataset& dataset, Parameters parameters, const ModelArrays& arrays,
            std::span<std::byte> activations, int64_t rows, const LoaderOptions& loading);
  ~Evaluator();

  // Every sample exactly once, each rank its share. All ranks call it together. `stop_requested` is
  // asked between batches. Details cost a look at every sample's logits.
  Evaluation run(const std::function<bool()>& stop_requested, bool with_details = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct CheckpointEvaluation {
  Evaluation evaluation;
  CheckpointState state;
  std::vector<std::string> class_names;
  bool classifies = true;  // else accuracies mean nothing
  // How the samples of `config` differ from those that the checkpoint's run evaluated on, as far as
  // that is known: see changes(). On rank 0.
  std::vector<std::string> data_changes = {};
};

// Evaluates a saved model. `path` is a checkpoint, or a run's folder for its newest good one.
// `trained_on`: where the data of `config` is not that of the run, see as_trained_on. `columns`: of
// the table that the run was trained on, see OpenOptions. All ranks call it together. Throws
// ConfigError when the checkpoint is of another network.
CheckpointEvaluation evaluate_checkpoint(const Config& config, Communicator& communicator,
                                         const std::string& path,
                                         const std::optional<SampleFacts>& trained_on = {},
                                         bool with_details = false,
                                         const TableColumns& columns = {});

// RUN/evaluation.json, for programs and for `trireme report`. Throws Error.
void write_evaluation(const std::filesystem::path& file, const CheckpointEvaluation& evaluation);

}  // namespace trireme
