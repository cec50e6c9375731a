// What training starts from instead of random numbers (ModelConfig::init_from): another model's
// values, found by name.
#pragma once

#include <filesystem>
#include <string>

#include "model/graph.h"
#include "model/weights.h"
#include "trainer/checkpoint/snapshot.h"

namespace trireme::train {

// All tensors of *.safetensors, *.safetensors.index.json with its shards, *.onnx, a checkpoint or
// run of ours, or a folder as Hugging Face has them, by the names that are in there. Throws
// ConfigError when it is none of these, DataError when it is damaged.
model::Weights read_weights(const std::filesystem::path& path);

struct InitialValues {
  model::Weights weights;  // by the network's names; what starts afresh is not among them
  std::string summary;  // "120 of 122 tensors from resnet18.safetensors (torchvision names); ..."
};

// Finds the network's parameters and running values among those of the file. Only the last layer
// with parameters may have another number of outputs there, or be absent; it then starts afresh.
// Throws ConfigError listing whatever else is missing, unexpected or of another shape.
InitialValues read_initial_values(const std::filesystem::path& path, const model::Graph& graph);

void load_initial_values(const InitialValues& initial, const StateArrays& state);

}  // namespace trireme::train
