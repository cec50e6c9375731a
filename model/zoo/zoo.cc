#include "model/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
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
  return {{length}, vocab_size, batch, description, vocab_size, /*label_per_token=*/true};
}
ZooDefaults vit(int64_t batch, const char* description) {
  return {{3, 224, 224}, 1000, batch, description};
}
ZooDefaults bert(int64_t length, int64_t batch, const char* description) {
  return {{length}, 2, batch, description, /*vocab_size=*/30522};
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
    {"bert-mini", Bert{{4, 256, 4, 4}},
     bert(128, 16, "BERT with 4 blocks of width 256 (Devlin et al., arXiv:1810.04805)")},
    {"bert-base", Bert{{12, 768, 12, 12}}, bert(128, 8, "BERT (Devlin et al., arXiv:1810.04805)")},
    {"vit-tiny", Vit{{12, 192, 3, 3}},
     vit(16, "vision transformer, width 192 (Dosovitskiy et al., arXiv:2010.11929)")},
    {"vit-base", Vit{{12, 768, 12, 12}},
     vit(8, "vision transformer, width 768 (Dosovitskiy et al., arXiv:2010.11929)")},
};

const Entry& find(const std::string& name) {
  for (const Entry& entry : kZoo) {
    if (name == entry.name) return entry;
  }
  throw ConfigError("model.zoo.name",
                    fmt::format("there is no network '{}'{} (known: {})", name,
                                did_you_mean(name, zoo_names()), fmt::join(zoo_names(), ", ")));
}

// An option that only networks have whose names begin with one of `prefixes`.
struct FamilyOption {
  const char* field;
  std::function<bool(const ZooConfig&)> is_set;
  std::vector<std::string> prefixes;
  const char* families;
};

// Throws ConfigError if an option is set that the network does not have, or to a value that it
// would ignore.
void check_options(const ZooConfig& options) {
  static const std::vector<std::string> transformers{"gpt", "llama", "bert", "vit"};
  static const std::vector<std::string> all{"gpt", "llama", "bert", "vit", "lstm"};
  static const FamilyOption checked[] = {
      {"hidden", [](const ZooConfig& zoo) { return zoo.hidden_size() > 0; }, {"mlp"}, "mlp has"},
      {"dropout",
       &ZooConfig::has_dropout,
       {"mlp", "alexnet", "vgg", "gpt", "llama", "bert", "vit", "lstm"},
       "mlp, AlexNet, VGG, transformers and lstm have"},
      {"blocks", &ZooConfig::has_blocks, all, "transformers and lstm have"},
      {"width", &ZooConfig::has_width, all, "transformers and lstm have"},
      {"heads", &ZooConfig::has_heads, transformers, "transformers have"},
      {"document_end",
       &ZooConfig::has_document_end,
       {"gpt", "llama", "lstm"},
       "GPT-2, Llama and lstm have"},
      {"stateful", &ZooConfig::has_stateful, {"lstm"}, "lstm has"},
      {"kv_heads", &ZooConfig::has_kv_heads, {"llama"}, "Llama has"},
      {"mlp_width", &ZooConfig::has_mlp_width, {"llama"}, "Llama has"},
      {"rotary_base", &ZooConfig::has_rotary_base, {"llama"}, "Llama has"},
      {"max_length", &ZooConfig::has_max_length, {"gpt", "bert"}, "GPT-2 and BERT have"},
      {"norm_epsilon", &ZooConfig::has_norm_epsilon, transformers, "transformers have"},
      {"patch", &ZooConfig::has_patch, {"vit"}, "vision transformers have"},
      {"pooling", &ZooConfig::has_pooling, {"bert", "vit"}, "BERT and vision transformers have"},
      {"padding_token", &ZooConfig::has_padding_token, {"bert"}, "BERT has"},
      {"segment_end", &ZooConfig::has_segment_end, {"bert"}, "BERT has"},
      {"vocab_size", &ZooConfig::has_vocab_size, {"bert"}, "BERT has"}};
  for (const FamilyOption& option : checked) {
    if (!option.is_set(options)) continue;
    const bool known = std::ranges::any_of(option.prefixes, [&](const std::string& prefix) {
      return options.name().starts_with(prefix);
    });
    if (known) continue;
    throw ConfigError(
        fmt::format("model.zoo.{}", option.field),
        fmt::format("'{}' has no {} to choose; {}", options.name(), option.field, option.families));
  }
  if (options.has_norm_epsilon() && !(options.norm_epsilon() > 0 && options.norm_epsilon() < 1)) {
    throw ConfigError("model.zoo.norm_epsilon",
                      fmt::format("must be above 0 and below 1, got {}", options.norm_epsilon()));
  }
  if (!(options.dropout() >= 0 && options.dropout() < 1)) {
    throw ConfigError("model.zoo.dropout",
                      fmt::format("must be at least 0 and below 1, got {}", options.dropout()));
  }
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
  const bool tokens = defaults.vocab_size > 0;
  return {.input = {tokens ? DType::kI32 : DType::kF32, defaults.input, Layout::row_major()},
          .target = {DType::kI32, defaults.label_per_token ? defaults.input : Shape{},
                     Layout::row_major()},
          .classes = defaults.classes,
          .vocab_size = defaults.vocab_size};
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
  check_options(options);
  return entry.build(entry.name, options, input);
}

}  // namespace trireme::model
