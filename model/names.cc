#include "model/names.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>

namespace trireme::model {
namespace {

using re2::RE2;

// Prefixes added by DistributedDataParallel, Lightning, torch.compile and wrapper modules.
constexpr std::array<std::string_view, 7> kPrefixes = {
    "module.", "model.", "_orig_mod.", "net.", "backbone.", "timm_model.", "transformer."};

// Names of the last layer in other frameworks.
constexpr std::array<std::string_view, 7> kHeads = {
    "fc", "head", "head.fc", "classifier", "classifier.1", "linear", "last_linear"};

// The layers of GPT-2 that are a Conv1D in transformers.
constexpr std::array<std::string_view, 4> kConv1dWeights = {
    ".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight", ".mlp.c_proj.weight"};

// Returns the name itself, then the name with one prefix after the other removed.
std::vector<std::string> without_prefixes(std::string name) {
  std::vector<std::string> names{name};
  for (bool found = true; found;) {
    found = false;
    for (std::string_view prefix : kPrefixes) {
      if (!name.starts_with(prefix)) continue;
      name.erase(0, prefix.size());
      names.push_back(name);
      found = true;
    }
  }
  return names;
}

std::optional<std::string> from_hugging_face(const std::string& name) {
  static const RE2 stem(R"((?:resnet\.)?embedder\.embedder\.(conv|norm)[a-z]+\.(\w+))");
  static const RE2 shortcut(
      R"((?:resnet\.)?encoder\.stages\.(\d{1,3})\.layers\.(\d{1,3})\.shortcut\.(conv|norm)[a-z]+\.(\w+))");
  static const RE2 block(
      R"((?:resnet\.)?encoder\.stages\.(\d{1,3})\.layers\.(\d{1,3})\.layer\.(\d{1,3})\.(conv|norm)[a-z]+\.(\w+))");
  if (name == "wpe.weight") return "wte.position";
  std::string kind, field;
  int stage = 0, layer = 0, part = 0;
  if (RE2::FullMatch(name, stem, &kind, &field)) {
    return fmt::format("{}1.{}", kind == "conv" ? "conv" : "bn", field);
  }
  if (RE2::FullMatch(name, shortcut, &stage, &layer, &kind, &field)) {
    return fmt::format("layer{}.{}.downsample.{}.{}", stage + 1, layer, kind == "conv" ? 0 : 1,
                       field);
  }
  if (RE2::FullMatch(name, block, &stage, &layer, &part, &kind, &field)) {
    return fmt::format("layer{}.{}.{}{}.{}", stage + 1, layer, kind == "conv" ? "conv" : "bn",
                       part + 1, field);
  }
  return std::nullopt;
}

std::optional<std::string> to_hugging_face(const std::string& name) {
  static const RE2 stem(R"((conv|bn)1\.(\w+))");
  static const RE2 shortcut(R"(layer(\d{1,3})\.(\d{1,3})\.downsample\.([01])\.(\w+))");
  static const RE2 block(R"(layer(\d{1,3})\.(\d{1,3})\.(conv|bn)(\d{1,3})\.(\w+))");
  const auto written = [](bool conv) { return conv ? "convolution" : "normalization"; };
  std::string kind, field;
  int stage = 0, layer = 0, part = 0;
  if (RE2::FullMatch(name, stem, &kind, &field)) {
    return fmt::format("resnet.embedder.embedder.{}.{}", written(kind == "conv"), field);
  }
  if (RE2::FullMatch(name, shortcut, &stage, &layer, &part, &field)) {
    return fmt::format("resnet.encoder.stages.{}.layers.{}.shortcut.{}.{}", stage - 1, layer,
                       written(part == 0), field);
  }
  if (RE2::FullMatch(name, block, &stage, &layer, &kind, &part, &field)) {
    return fmt::format("resnet.encoder.stages.{}.layers.{}.layer.{}.{}.{}", stage - 1, layer,
                       part - 1, written(kind == "conv"), field);
  }
  if (name.starts_with("fc.")) return "classifier.1." + name.substr(3);
  return std::nullopt;
}

// Translates names of timm's VGG and of widely copied ResNets for CIFAR.
std::optional<std::string> from_elsewhere(const std::string& name) {
  static const RE2 hidden(R"(pre_logits\.fc([12])\.(\w+))");
  static const RE2 shortcut(R"((layer\d{1,3}\.\d{1,3})\.shortcut\.([01])\.(\w+))");
  std::string block, field;
  int part = 0;
  if (RE2::FullMatch(name, hidden, &part, &field)) {
    return fmt::format("classifier.{}.{}", part == 1 ? 0 : 3, field);
  }
  if (RE2::FullMatch(name, shortcut, &block, &part, &field)) {
    return fmt::format("{}.downsample.{}.{}", block, part, field);
  }
  return std::nullopt;
}

// Translates a usual name of the last layer to `head`.
std::optional<std::string> as_head(const std::string& name, const std::string& head) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string_view layer = std::string_view(name).substr(0, dot);
  if (std::ranges::find(kHeads, layer) == kHeads.end()) return std::nullopt;
  return head + name.substr(dot);
}

}  // namespace

std::optional<std::string> name_in(NameStyle style, const std::string& name) {
  return style == NameStyle::kHuggingFace ? to_hugging_face(name) : name;
}

bool has_torchvision_names(std::string_view network) {
  return network.starts_with("resnet") || network.starts_with("vgg") || network == "alexnet";
}

std::vector<NameGuess> name_guesses(const std::string& file_name, const std::string& head) {
  const std::vector<std::string> names = without_prefixes(file_name);
  std::vector<NameGuess> guesses;
  for (const std::string& name : names) guesses.push_back({name, NameStyle::kTorchvision});
  for (const std::string& name : names) {
    if (auto guess = from_hugging_face(name)) guesses.push_back({*guess, NameStyle::kHuggingFace});
    if (auto guess = from_elsewhere(name)) guesses.push_back({*guess, NameStyle::kTorchvision});
    if (auto guess = as_head(name, head)) guesses.push_back({*guess, NameStyle::kTorchvision});
  }
  return guesses;
}

bool is_bookkeeping(const std::string& file_name) {
  static const RE2 mask(R"(h\.\d{1,4}\.attn\.(?:masked_)?bias)");
  return file_name.ends_with("num_batches_tracked") ||
         RE2::FullMatch(without_prefixes(file_name).back(), mask);
}

bool is_conv1d_weight(std::string_view name) {
  return std::ranges::any_of(kConv1dWeights,
                             [&](std::string_view weight) { return name.ends_with(weight); });
}

}  // namespace trireme::model
