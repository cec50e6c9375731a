// A network as a graph of layers with known shapes. Passes rewrite it, and the compiler turns it
// into a Program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "model/layer.h"

namespace trireme {
class ModelConfig;
class NetworkConfig;
}  // namespace trireme

namespace trireme::model {

// The format of a sample's input and target as stored, and how the network normalizes the input:
// (x * scale - mean[c]) / stddev[c].
struct ModelInput {
  TensorSpec input;  // without the batch: [C, H, W] or [F], u8 or f32; or i32 [T] for tokens
  // i32 [] (a label), i32 [T] (a label for each token), f32 [classes] (probabilities) or f32 [F]
  // (regression).
  TensorSpec target;
  int64_t classes = 0;  // 0 for regression
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> stddev{1};
  int64_t vocab_size = 0;  // of input tokens, if labels are not tokens of the same vocabulary

  // Returns the size of the vocabulary of input tokens.
  int64_t vocabulary() const { return vocab_size > 0 ? vocab_size : classes; }
  int64_t labels_per_sample() const {
    return target.dtype == DType::kI32 ? target.shape.elements() : 1;
  }
};

struct Node {
  std::string name;
  std::vector<std::string> fused;  // names of the layers that were fused into this one
  std::unique_ptr<Layer> layer;
  std::vector<int> inputs;  // indices of the nodes read; -1 is the network's input
  Signature signature;      // output shape, parameters and running statistics
};

// Returns the parameter's name in the arrays and in checkpoints: "conv1.weight".
std::string parameter_name(const Node& node, const Signature::Parameter& parameter);

struct Graph {
  std::string name;
  ModelInput input;
  std::vector<Node> nodes;  // in topological order; the last one is the loss
};

// Returns whether any layer carries states from one batch to the next (RecurrentConfig.stateful).
bool is_stateful(const ModelConfig& config);

// Returns the graph of the configured network, with shapes inferred and passes applied. Throws a
// ConfigError that names the layer, the shape it reads and the shape it requires.
Graph build_graph(const ModelConfig& config, const ModelInput& input);

// Returns the layers of the configured network: those of the configuration, or of the zoo.
NetworkConfig network_of(const ModelConfig& config, const ModelInput& input);
// Returns a graph with one node for each layer, without passes: the first half of build_graph.
Graph declare_graph(const NetworkConfig& network, const ModelInput& input);

// Returns the layers of the zoo network that `config` names. If there is no such network, throws a
// ConfigError that suggests the most similar name.
NetworkConfig zoo_network(const ModelConfig& config, const ModelInput& input);
// Returns the names of the zoo networks.
std::vector<std::string> zoo_names();
// Defaults of a zoo network for benchmarks on synthetic data.
struct ZooDefaults {
  Shape input;
  int64_t classes = 10;
  int64_t batch = 64;            // on one rank
  std::string description = {};  // one line, with the paper
  // If positive, the input is tokens of this vocabulary.
  int64_t vocab_size = 0;
  bool label_per_token = false;
};
// Throws ConfigError, as zoo_network does, if there is no network of this name.
ZooDefaults zoo_defaults(const std::string& name);
// Returns the default samples of a zoo network.
ModelInput zoo_input(const std::string& name);

}  // namespace trireme::model
