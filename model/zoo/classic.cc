// MLP, LeNet-5 and AlexNet.
#include <fmt/format.h>

#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {

NetworkConfig mlp(const std::string& name, const ZooConfig& options, const ModelInput&) {
  NetworkBuilder net(name, options);
  net.layer("flatten").mutable_flatten();
  const int layers = options.hidden().empty() ? 2 : options.hidden_size();
  for (int i = 0; i < layers; ++i) {
    net.dense(fmt::format("fc{}", i + 1), options.hidden().empty() ? 4096 : options.hidden(i));
    net.relu(fmt::format("relu{}", i + 1));
    net.dropout(fmt::format("dropout{}", i + 1), options.dropout());
  }
  net.dense(fmt::format("fc{}", layers + 1), options.classes());
  return net.finish();
}

// LeNet-5 (LeCun et al., 1998) with ReLU and max pooling.
NetworkConfig lenet(const std::string& name, const ZooConfig& options, const ModelInput&) {
  NetworkBuilder net(name, options);
  net.conv("conv1", 6, 5, 1, 2);
  net.relu("relu1");
  net.max_pool("pool1", 2, 2);
  net.conv("conv2", 16, 5);
  net.relu("relu2");
  net.max_pool("pool2", 2, 2);
  net.layer("flatten").mutable_flatten();
  net.dense("fc1", 120);
  net.relu("relu3");
  net.dense("fc2", 84);
  net.relu("relu4");
  net.dense("fc3", options.classes());
  return net.finish();
}

// One-tower AlexNet (Krizhevsky, arXiv:1404.5997), named as in torchvision.
NetworkConfig alexnet(const std::string& name, const ZooConfig& options, const ModelInput&) {
  NetworkBuilder net(name, options);
  const float rate = options.has_dropout() ? options.dropout() : 0.5f;
  net.conv("features.0", 64, 11, 4, 2);
  net.relu("features.1");
  net.max_pool("features.2", 3, 2);
  net.conv("features.3", 192, 5, 1, 2);
  net.relu("features.4");
  net.max_pool("features.5", 3, 2);
  net.conv("features.6", 384, 3, 1, 1);
  net.relu("features.7");
  net.conv("features.8", 256, 3, 1, 1);
  net.relu("features.9");
  net.conv("features.10", 256, 3, 1, 1);
  net.relu("features.11");
  net.max_pool("features.12", 3, 2);
  net.layer("flatten").mutable_flatten();
  net.dropout("classifier.0", rate);
  net.dense("classifier.1", 4096);
  net.relu("classifier.2");
  net.dropout("classifier.3", rate);
  net.dense("classifier.4", 4096);
  net.relu("classifier.5");
  net.dense("classifier.6", options.classes());
  return net.finish();
}

}  // namespace trireme::model
