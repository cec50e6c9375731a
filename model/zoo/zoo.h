// Functions that build the named networks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.h"
#include "model/model.pb.h"

namespace trireme::model {

NetworkConfig mlp(const std::string& name, const ZooConfig& options, const ModelInput& input);
NetworkConfig lenet(const std::string& name, const ZooConfig& options, const ModelInput& input);
NetworkConfig alexnet(const std::string& name, const ZooConfig& options, const ModelInput& input);

// LSTM layers between an embedding and a dense layer.
NetworkConfig lstm(const std::string& name, const ZooConfig& options, const ModelInput& input);

struct Vgg {
  std::vector<int> convolutions;  // number in each of the five groups
  bool norm = false;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

struct ResNet {
  std::vector<int> blocks;  // number in each stage
  bool bottleneck = false;
  bool cifar_stem = false;
  int64_t width = 64;  // channels of the first stage, in its 3x3 convolutions
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

// Throws ConfigError unless the network's input is tokens.
void require_tokens(const std::string& name, const ModelInput& input);

// The size of a decoder, which model.zoo.blocks, width and heads override.
struct DecoderSize {
  int64_t blocks, width, heads;
  int64_t kv_heads;
};

// A decoder with learned positions, layer norms and GELU, and the head tied to the embedding, with
// the layer names of Hugging Face.
struct Gpt2 {
  DecoderSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

// A decoder with rotary positions, RMS norms, SwiGLU and grouped heads of keys and values.
struct Llama {
  DecoderSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

}  // namespace trireme::model
