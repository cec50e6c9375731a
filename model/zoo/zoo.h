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

// The size of a transformer, which model.zoo.blocks, width and heads override.
struct TransformerSize {
  int64_t blocks, width, heads;
  int64_t kv_heads;
};

// A decoder with learned positions, layer norms and GELU, and the head tied to the embedding, with
// the layer names of Hugging Face.
struct Gpt2 {
  TransformerSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

// A decoder with rotary positions, RMS norms, SwiGLU and grouped heads of keys and values.
struct Llama {
  TransformerSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

// A vision transformer with a class token, learned positions, layer norms before the branches and
// GELU, with the layer names of timm. Images are cut into patches of 16 x 16 or model.zoo.patch.
struct Vit {
  TransformerSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

// BERT, with almost the layer names of Hugging Face. Labels of samples are predicted from the first
// token or the mean over the tokens; if each token has a label, it is predicted from that token.
struct Bert {
  TransformerSize size;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

}  // namespace trireme::model
