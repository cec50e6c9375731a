#include "model/zoo/zoo.h"

#include <fmt/format.h>

#include <functional>

#include "core/error.h"
#include "core/text.h"

namespace trireme::model {
namespace {

struct Entry {
  std::string name;
  std::function<NetworkConfig(const std::string&, const ZooConfig&, const ModelInput&)> build;
  ZooDefaults defaults;
};

// Defaults for benchmarks.
const ZooDefaults kVgg{{3, 224, 224}, 1000, 8, "plain 3x3 convolutions (arXiv:1409.1556)"};
const ZooDefaults kVggNorm{
    {3, 224, 224}, 1000, 8, "plain 3x3 convolutions, batch norm (arXiv:1409.1556)"};
const ZooDefaults kResNet{
    {3, 224, 224}, 1000, 16, "residual network, basic blocks (He et al., arXiv:1512.03385)"};
const ZooDefaults kBottlenecks{
    {3, 224, 224}, 1000, 16, "residual network, bottlenecks (He et al., arXiv:1512.03385)"};
const ZooDefaults kSmallImages{
    {3, 32, 32}, 10, 64, "ResNet-18 for small images: 3x3 stem, no pooling (arXiv:1512.03385)"};
const ZooDefaults kThreeStages{
    {3, 32, 32}, 10, 64, "three-stage ResNet for CIFAR (arXiv:1512.03385, section 4.2)"};
ZooDefaults language_model(int64_t length, int64_t vocab_size, int64_t batch,
                           const char* description) {
  return {{length}, vocab_size, batch, description, /*tokens=*/true};
}
const char* const kGpt2 = "GPT-2 (Radford et al., 2019)";
const Entry kZoo[] = {
    {"mlp", mlp, {{784}, 10, 256, "fully connected layers with ReLU; widths by model.zoo.hidden"}},
    {"lenet",
     lenet,
     {{1, 28, 28}, 10, 64, "LeNet-5 with ReLU and max pooling (LeCun et al., 1998)"}},
    {"alexnet",
     alexnet,
     {{3, 224, 224}, 1000, 16, "one-tower AlexNet (Krizhevsky, arXiv:1404.5997)"}},
    {"vgg11", Vgg{{1, 1, 2, 2, 2}}, kVgg},
    {"vgg11-bn", Vgg{{1, 1, 2, 2, 2}, true}, kVggNorm},
    {"vgg13", Vgg{{2, 2, 2, 2, 2}}, kVgg},
    {"vgg13-bn", Vgg{{2, 2, 2, 2, 2}, true}, kVggNorm},
    {"vgg16", Vgg{{2, 2, 3, 3, 3}}, kVgg},
    {"vgg16-bn", Vgg{{2, 2, 3, 3, 3}, true}, kVggNorm},
    {"vgg19", Vgg{{2, 2, 4, 4, 4}}, kVgg},
    {"vgg19-bn", Vgg{{2, 2, 4, 4, 4}, true}, kVggNorm},
    {"resnet18", ResNet{{2, 2, 2, 2}}, kResNet},
    {"resnet34", ResNet{{3, 4, 6, 3}}, kResNet},
    {"resnet50", ResNet{{3, 4, 6, 3}, true}, kBottlenecks},
    {"resnet18-cifar", ResNet{.blocks = {2, 2, 2, 2}, .cifar_stem = true}, kSmallImages},
    // The three-stage form of section 4.2 of the paper, with projections as shortcuts.
    {"resnet20", ResNet{.blocks = {3, 3, 3}, .cifar_stem = true, .width = 16}, kThreeStages},
    {"resnet56", ResNet{.blocks = {9, 9, 9}, .cifar_stem = true, .width = 16}, kThreeStages},
    {"gpt-mini", Gpt2{{6, 384, 6, 6}},
     language_model(256, 65, 8, "GPT-2 with 6 blocks of width 384 (Radford et al., 2019)")},
    {"gpt2-124m", Gpt2{{12, 768, 12, 12}}, language_model(1024, 50304, 4, kGpt2)},
    {"gpt2-355m", Gpt2{{24, 1024, 16, 16}}, language_model(1024, 50304, 4, kGpt2)},
    {"gpt2-774m", Gpt2{{36, 1280, 20, 20}}, language_model(1024, 50304, 1, kGpt2)},
    {"llama-mini", Llama{{6, 384, 6, 2}},
     language_model(256, 65, 8, "Llama with 6 blocks of width 384 (arXiv:2302.13971)")},
    {"lstm", lstm,
     language_model(32, 10000, 64,
                    "2 LSTM layers of width 256 (Hochreiter and Schmidhuber, 1997)")},
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

ModelInput zoo_input(const std::string& name) {
  const ZooDefaults defaults = zoo_defaults(name);
  const TensorSpec tokens{DType::kI32, defaults.input, Layout::row_major()};
  if (defaults.tokens) return {.input = tokens, .target = tokens, .classes = defaults.classes};
  return {.input = {DType::kF32, defaults.input, Layout::row_major()},
          .target = {DType::kI32, Shape{}, Layout::row_major()},
          .classes = defaults.classes};
}

NetworkConfig zoo_network(const ModelConfig& config, const ModelInput& input) {
  if (!config.has_zoo()) {
    throw ConfigError(
        "model", "is empty; choose a network: zoo { name: \"lenet\" } or network { layer ... }");
  }
  ZooConfig options = config.zoo();
  if (!options.has_classes()) options.set_classes(input.classes);
  if (options.classes() < 1) {
    throw ConfigError("model.zoo.classes", "must be set, since the data has no classes");
  }
  const Entry& entry = find(options.name());
  if (!entry.defaults.tokens && (options.has_blocks() || options.has_width() ||
                                 options.has_heads() || options.has_document_end())) {
    throw ConfigError("model.zoo",
                      fmt::format("'{}' has no blocks, width, heads and document_end to choose; "
                                  "GPT-2 and Llama have",
                                  options.name()));
  }
  return entry.build(entry.name, options, input);
}

}  // namespace trireme::model
