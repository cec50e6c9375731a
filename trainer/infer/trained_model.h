// The network of a run with its saved parameters in device memory, for inference.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "model/context.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace trireme::train {

enum class BatchNormMode {
  kUnfolded,  // batch norms remain; outputs are bitwise those of evaluations in training
  kFolded,    // batch norms are folded into convolutions if possible; outputs differ by rounding
};

class TrainedModel {
 public:
  // Loads a model for batches of `rows` samples of the format `samples`. `path` and `warn` are
  // passed to find_for_inference. Throws what find_for_inference throws, and ConfigError if the
  // checkpoint belongs to a different network.
  TrainedModel(const Config& config, ops::Backend& backend, const data::SampleSpec& samples,
               const std::string& path, int64_t rows, BatchNormMode norms, const Warn& warn);

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
