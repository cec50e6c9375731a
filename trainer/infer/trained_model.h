// The network of a run with the values that it has saved, in the memory of a device, for inference.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "model/context.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace trireme::train {

enum class BatchNorms {
  kKept,    // the network to the bit as training evaluates it
  kFolded,  // into the convolutions before them, where that is possible: equal but for rounding
};

class TrainedModel {
 public:
  // For samples such as these, `rows` at a time. `path` and `warn` as for find_trained. Throws
  // as that does, and ConfigError when the checkpoint is of another network.
  TrainedModel(const Config& config, ops::Backend& backend, const data::SampleSpec& samples,
               const std::string& path, int64_t rows, BatchNorms norms, const Warn& warn);

  const model::Graph& graph() const { return graph_; }
  const model::Parameters& parameters() const { return parameters_; }
  // Parameters and running values, for programs compiled for inference with parameters().
  const model::ModelArrays& arrays() const { return arrays_; }
  const CheckpointState& state() const { return state_; }

 private:
  void place(const model::Weights& weights, ops::Backend& backend);

  model::Graph graph_;
  CheckpointState state_;
  model::Parameters parameters_;
  Buffer values_;
  model::LowPrecisionCopy low_precision_;
  Buffer running_;
  model::ModelArrays arrays_;
};

}  // namespace trireme::train
