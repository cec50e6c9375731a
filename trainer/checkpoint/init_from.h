// Initializes a network from the parameters of another model, matched by name (model.init_from).
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "model/graph.h"
#include "model/weights.h"
#include "trainer/checkpoint/snapshot.h"
#include "trainer/checkpoint/stored_model.h"
#include "trainer/config/config.h"

namespace trireme::train {

struct InitialValues {
  model::Weights weights;  // by the network's names, without the tensors that are newly initialized
  std::string summary;  // "120 of 122 tensors from resnet18.safetensors (torchvision names); ..."
};

// Finds the network's parameters and running statistics in the file. The last layer with parameters
// may be missing or have a different number of outputs; it is then newly initialized, unless its
// weights are tied. Weights of GPT-2 that transformers has stored as [inputs, outputs] are
// transposed, and queries, keys and values that it has stored separately are joined. Of a longer
// table of positions, the first rows are used. Heads of BERT may be missing or unused. If both the
// file and the data name the classes (`class_names`), the outputs of the last layer are reordered
// to those of the data. Throws ConfigError listing all other tensors that are missing, unexpected
// or of a different shape, or if a class of the data is not among those of the file.
InitialValues read_initial_values(StoredModel stored, const model::Graph& graph,
                                  const std::vector<std::string>& class_names = {});
// Like this for the network and the training samples of a run. Also throws ConfigError if the
// stored model computes something else (TransformersConfig::compare). The summary says so if it
// has another tokenizer. ConfigErrors name the location in the configuration file.
InitialValues read_initial_values(StoredModel stored, const Config& config,
                                  const model::Graph& graph, const data::Dataset& training);

// Overwrites the tensors that `initial` contains; the others are not changed.
void load_initial_values(const InitialValues& initial, const StateArrays& state);

}  // namespace trireme::train
