// A network as layers and the values between them, with shapes known: what passes rewrite and the
// compiler lowers.
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

// What the network reads: one sample's input and target as stored, and how to normalize the input.
struct ModelInput {
  TensorSpec input;     // without the batch: [C, H, W] or [F], u8 or f32
  TensorSpec target;    // i32 [] (a label), f32 [classes] (their probabilities) or f32 [F]
  int64_t classes = 0;  // 0: numbers are to be predicted
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> deviation{1};
};

struct Node {
  std::string name;
  std::unique_ptr<Layer> layer;
  std::vector<int> inputs;  // nodes read; -1 is the network's input
  Signature signature;      // shape of the output and parameters
};

struct Graph {
  std::string name;
  ModelInput input;
  std::vector<Node> nodes;  // in an order that they can run in; the last one is the loss
};

// Checks the configuration, infers shapes and applies the passes. Throws ConfigError naming the
// layer, the shape it got and the shape that would fit.
Graph build_graph(const ModelConfig& config, const ModelInput& input);

// The layers that are meant, the zoo's or the configuration's own.
NetworkConfig network_of(const ModelConfig& config, const ModelInput& input);
// The first half of build_graph: one node for each layer, as declared, before passes.
Graph declare_graph(const NetworkConfig& network, const ModelInput& input);

// The network of that name as layers; throws ConfigError with the nearest known name.
NetworkConfig zoo_network(const ModelConfig& config, const ModelInput& input);
std::vector<std::string> zoo_names();
// The input a zoo network is meant for, for benchmarks on synthetic data, its usual batch on one
// rank, and what it is, with its paper, in one line.
struct ZooDefaults {
  Shape input;
  int64_t classes = 10;
  int64_t batch = 64;
  std::string about = {};
};
ZooDefaults zoo_defaults(const std::string& name);

}  // namespace trireme::model
