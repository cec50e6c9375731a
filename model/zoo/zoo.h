// The named networks, as layers.
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
  std::vector<int> convolutions;  // in each of five groups
  bool norm = false;
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

struct ResNet {
  std::vector<int> blocks;  // in each stage
  bool bottleneck = false;
  bool cifar_stem = false;
  int64_t width = 64;  // of the first stage
  NetworkConfig operator()(const std::string& name, const ZooConfig& options,
                           const ModelInput& input) const;
};

}  // namespace trireme::model
