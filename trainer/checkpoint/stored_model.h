// Reads a model whose parameters a network can start from (model.init_from).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/graph.h"
#include "model/weights.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/transformers_config.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns all tensors of *.safetensors, *.safetensors.index.json with its shards, *.onnx, a
// checkpoint or run of Trireme, or a folder in the layout of Hugging Face, by their names in the
// file. Throws ConfigError if the path is none of these, and DataError if a file is damaged.
// With an index, each tensor is that of the shard that the index states.
model::Weights read_weights(const std::filesystem::path& path);
// Returns those of a checkpoint, with the averages of parameters if it has them.
model::Weights read_weights(const FoundCheckpoint& checkpoint);

// A model that a network can start from.
struct StoredModel {
  std::filesystem::path path;
  model::Weights weights;
  // What the file says about its outputs and its input, or the run that it belongs to; empty if
  // nothing does.
  std::vector<std::string> class_names = {};
  std::string tokenizer = {};                          // its identity
  std::optional<TransformersConfig> description = {};  // config.json beside the weights
};
// Throws like read_weights.
StoredModel read_stored_model(const std::filesystem::path& path);

// Returns whether the network has learned positions of tokens.
bool has_learned_positions(const model::Graph& graph);
// Returns the rows of the longest table of learned positions that the model, or a *.safetensors
// file with the network's own names, has for the network; 0 if it has none.
int64_t stored_positions(const StoredModel& stored, const model::Graph& graph);
int64_t stored_positions(const std::filesystem::path& file, const model::Graph& graph);
// Sets max_length of the network's learned positions, unless it is set, to this number of rows if
// samples have fewer, so that no position of the model that it starts from is lost. Returns whether
// the configuration has changed; the network must then be built again.
bool keep_positions(Config& config, const model::Graph& graph, int64_t rows);

}  // namespace trireme::train
