// The network of a run with the values that it has saved, in the memory of a device, for inference.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "model/context.h"
#include "model/graph.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"

namespace trireme {

enum class BatchNorms {
  kKept,    // the network to the bit as training evaluates it
  kFolded,  // into the convolutions before them, where that is possible: equal but for rounding
};

class TrainedModel {
 public:
  // For samples such as these, `rows` at a time. `path` and `warn` as for find_checkpoint. Throws
  // as that does, and ConfigError when the checkpoint is of another network.
  TrainedModel(const Config& config, Backend& backend, const SampleSpec& samples,
               const std::string& path, int64_t rows, BatchNorms norms, const Warn& warn);

  const Graph& graph() const { return graph_; }
  const Parameters& parameters() const { return parameters_; }
  // Parameters and running values, for programs compiled for inference with parameters().
  const ModelArrays& arrays() const { return arrays_; }
  const CheckpointState& state() const { return state_; }

 private:
  void place(const Weights& weights, Backend& backend);

  Graph graph_;
  CheckpointState state_;
  Parameters parameters_;
  Buffer values_;
  LowPrecisionCopy low_precision_;
  Buffer running_;
  ModelArrays arrays_;
};

}  // namespace trireme
