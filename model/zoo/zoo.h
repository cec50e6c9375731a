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

}  // namespace trireme::model
