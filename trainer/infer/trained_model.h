// The network of a run with its saved parameters in device memory, for inference.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/dataset.h"
#include "model/context.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/config/run_folder.h"
#include "trainer/report/sample_info.h"

namespace trireme::train {

struct TrainedRun {
  RunFolder folder;
  FoundCheckpoint checkpoint;
  Config config;  // with which the checkpoint was written; that of the latest start may differ
};

// Finds the checkpoint that a path names (see find_for_inference) and applies `assignments` to its
// configuration. Throws what find_run and find_for_inference throw, and ConfigError.
TrainedRun find_trained_run(const std::string& path, std::span<const std::string> assignments,
                            const Warn& warn);

// Returns the description of a run's samples, with the normalization of the checkpoint's
// configuration. Throws what read_sample_info throws, and ConfigError.
SampleInfo samples_of(const TrainedRun& run);

enum class BatchNormMode {
  kUnfolded,  // batch norms remain; outputs are bitwise those of evaluations in training
  kFolded,    // batch norms are folded into convolutions if possible; outputs differ by rounding
};

class TrainedModel {
 public:
  // Loads a model for batches of `rows` samples of the format `samples`. Throws ConfigError if the
  // checkpoint belongs to a different network.
  TrainedModel(const Config& config, ops::Backend& backend, const data::SampleSpec& samples,
               const FoundCheckpoint& checkpoint, int64_t rows, BatchNormMode norms);

  const model::Graph& graph() const { return graph_; }
  const model::Parameters& parameters() const { return parameters_; }
  // Returns parameters and running statistics, for programs compiled for inference with
  // parameters().
  const model::ModelArrays& arrays() const { return arrays_; }
  const CheckpointState& state() const { return state_; }

 private:
  void load_weights(const model::Weights& weights, ops::Backend& backend);

  model::Graph graph_;
  CheckpointState state_;
  model::Parameters parameters_;
  Buffer values_;
  model::LowPrecisionCopy low_precision_;
  Buffer running_;
  model::ModelArrays arrays_;
};

}  // namespace trireme::train
