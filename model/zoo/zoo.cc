#include "model/zoo/zoo.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text.h"

namespace trireme {
namespace {

struct Entry {
  const char* name;
  NetworkConfig (*build)(const ZooConfig&, const ModelInput&);
  ZooDefaults defaults;
};

// The defaults are those of the benchmarks.
const Entry kZoo[] = {
    {"mlp", mlp, {{784}, 10, 256, "fully connected layers with ReLU; widths by model.zoo.hidden"}},
    {"lenet",
     lenet,
     {{1, 28, 28}, 10, 64, "LeNet-5 with ReLU and max pooling (LeCun et al., 1998)"}},
    {"alexnet",
     alexnet,
     {{3, 224, 224}, 1000, 16, "one-tower AlexNet (Krizhevsky, arXiv:1404.5997)"}},
    {"vgg11", vgg11, {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions (arXiv:1409.1556)"}},
    {"vgg11-bn",
     vgg11_bn,
     {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions, batch norm (arXiv:1409.1556)"}},
    {"vgg13", vgg13, {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions (arXiv:1409.1556)"}},
    {"vgg13-bn",
     vgg13_bn,
     {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions, batch norm (arXiv:1409.1556)"}},
    {"vgg16", vgg16, {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions (arXiv:1409.1556)"}},
    {"vgg16-bn",
     vgg16_bn,
     {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions, batch norm (arXiv:1409.1556)"}},
    {"vgg19", vgg19, {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions (arXiv:1409.1556)"}},
    {"vgg19-bn",
     vgg19_bn,
     {{3, 224, 224}, 1000, 8, "plain 3x3 convolutions, batch norm (arXiv:1409.1556)"}},
    {"resnet18",
     resnet18,
     {{3, 224, 224}, 1000, 16, "residual network, basic blocks (He et al., arXiv:1512.03385)"}},
    {"resnet34",
     resnet34,
     {{3, 224, 224}, 1000, 16, "residual network, basic blocks (He et al., arXiv:1512.03385)"}},
    {"resnet50",
     resnet50,
     {{3, 224, 224}, 1000, 16, "residual network, bottlenecks (He et al., arXiv:1512.03385)"}},
    {"resnet18-cifar",
     resnet18_cifar,
     {{3, 32, 32},
      10,
      64,
      "ResNet-18 for small pictures: 3x3 stem, no pooling (arXiv:1512.03385)"}},
    {"resnet20",
     resnet20,
     {{3, 32, 32}, 10, 64, "three-stage ResNet for CIFAR (arXiv:1512.03385, section 4.2)"}},
    {"resnet56",
     resnet56,
     {{3, 32, 32}, 10, 64, "three-stage ResNet for CIFAR (arXiv:1512.03385, section 4.2)"}},
};

const Entry& find(const std::string& name) {
  for (const Entry& entry : kZoo) {
    if (name == entry.name) return entry;
  }
  throw ConfigError("model.zoo.name",
                    fmt::format("there is no network '{}'{} (known: {})", name,
                                did_you_mean(name, zoo_names()), fmt::join(zoo_names(), ", ")));
}

}  // namespace

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kZoo) names.push_back(entry.name);
  return names;
}

ZooDefaults zoo_defaults(const std::string& name) { return find(name).defaults; }

NetworkConfig zoo_network(const ModelConfig& config, const ModelInput& input) {
  if (!config.has_zoo()) {
    throw ConfigError("model",
                      "choose a network: zoo { name: \"lenet\" } or network { layer ... }");
  }
  ZooConfig options = config.zoo();
  if (!options.has_classes()) options.set_classes(input.classes);
  if (options.classes() < 1) {
    throw ConfigError("model.zoo.classes", "must be given: the data does not tell the classes");
  }
  return find(options.name()).build(options, input);
}

}  // namespace trireme
