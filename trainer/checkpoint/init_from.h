// Initializes a network from the parameters of another model, matched by name (model.init_from).
#pragma once

#include <filesystem>
#include <string>

#include "model/graph.h"
#include "model/weights.h"
#include "trainer/checkpoint/snapshot.h"

namespace trireme::train {

// Returns all tensors of *.safetensors, *.safetensors.index.json with its shards, *.onnx, a
// checkpoint or run of Trireme, or a folder in the layout of Hugging Face, by their names in the
// file. Throws ConfigError if the path is none of these, and DataError if a file is damaged.
model::Weights read_weights(const std::filesystem::path& path);

struct InitialValues {
  model::Weights weights;  // by the network's names, without the tensors that are newly initialized
  std::string summary;  // "120 of 122 tensors from resnet18.safetensors (torchvision names); ..."
};

// Finds the network's parameters and running statistics in the file. The last layer with parameters
// may be missing or have a different number of outputs; it is then newly initialized, unless its
// weights are tied. Weights of GPT-2 that transformers has stored as [inputs, outputs] are
// transposed, and queries, keys and values that it has stored separately are joined. Of a longer
// table of positions, the first rows are used. Heads of BERT may be missing or unused. Throws
// ConfigError listing all other tensors that are missing, unexpected or of a different shape.
InitialValues read_initial_values(const std::filesystem::path& path, const model::Graph& graph);

// Overwrites the tensors that `initial` contains; the others are not changed.
void load_initial_values(const InitialValues& initial, const StateArrays& state);

}  // namespace trireme::train
