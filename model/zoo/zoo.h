// The named networks, as layers.
#pragma once

#include "model/graph.h"
#include "model/model.pb.h"

namespace trireme {

NetworkConfig mlp(const ZooConfig& options, const ModelInput& input);
NetworkConfig lenet(const ZooConfig& options, const ModelInput& input);
NetworkConfig alexnet(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet18(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet34(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet50(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet18_cifar(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet20(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet56(const ZooConfig& options, const ModelInput& input);

}  // namespace trireme
