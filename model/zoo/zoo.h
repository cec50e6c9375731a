// The named networks, as layers.
#pragma once

#include "model/graph.h"
#include "model/model.pb.h"

namespace trireme {

NetworkConfig mlp(const ZooConfig& options, const ModelInput& input);
NetworkConfig lenet(const ZooConfig& options, const ModelInput& input);
NetworkConfig alexnet(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg11(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg11_bn(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg13(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg13_bn(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg16(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg16_bn(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg19(const ZooConfig& options, const ModelInput& input);
NetworkConfig vgg19_bn(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet18(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet34(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet50(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet18_cifar(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet20(const ZooConfig& options, const ModelInput& input);
NetworkConfig resnet56(const ZooConfig& options, const ModelInput& input);

}  // namespace trireme
