#include "model/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>

namespace trireme::model {
namespace {

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
  static const std::regex stem(R"((?:resnet\.)?embedder\.embedder\.(conv|norm)[a-z]+\.(\w+))");
  static const std::regex shortcut(
      R"((?:resnet\.)?encoder\.stages\.(\d{1,3})\.layers\.(\d{1,3})\.shortcut\.(conv|norm)[a-z]+\.(\w+))");
  static const std::regex block(
      R"((?:resnet\.)?encoder\.stages\.(\d{1,3})\.layers\.(\d{1,3})\.layer\.(\d{1,3})\.(conv|norm)[a-z]+\.(\w+))");
  if (name == "wpe.weight") return "wte.position";
  std::smatch m;
  const auto text = [&m](size_t group) { return m[group].str(); };
  const auto next = [&m](size_t group) { return std::stoi(m[group].str()) + 1; };
  const auto is_conv = [&m](size_t group) { return m[group].str() == "conv"; };
  if (std::regex_match(name, m, stem)) {
    return fmt::format("{}1.{}", is_conv(1) ? "conv" : "bn", text(2));
  }
  if (std::regex_match(name, m, shortcut)) {
    return fmt::format("layer{}.{}.downsample.{}.{}", next(1), text(2), is_conv(3) ? 0 : 1,
                       text(4));
  }
  if (std::regex_match(name, m, block)) {
    return fmt::format("layer{}.{}.{}{}.{}", next(1), text(2), is_conv(4) ? "conv" : "bn", next(3),
                       text(5));
  }
  return std::nullopt;
}

std::optional<std::string> to_hugging_face(const std::string& name) {
  static const std::regex stem(R"((conv|bn)1\.(\w+))");
  static const std::regex shortcut(R"(layer(\d{1,3})\.(\d{1,3})\.downsample\.([01])\.(\w+))");
  static const std::regex block(R"(layer(\d{1,3})\.(\d{1,3})\.(conv|bn)(\d{1,3})\.(\w+))");
  std::smatch m;
  const auto text = [&m](size_t group) { return m[group].str(); };
  const auto before = [&m](size_t group) { return std::stoi(m[group].str()) - 1; };
  const auto kind = [](bool convolution) { return convolution ? "convolution" : "normalization"; };
  if (std::regex_match(name, m, stem)) {
    return fmt::format("resnet.embedder.embedder.{}.{}", kind(text(1) == "conv"), text(2));
  }
  if (std::regex_match(name, m, shortcut)) {
    return fmt::format("resnet.encoder.stages.{}.layers.{}.shortcut.{}.{}", before(1), text(2),
                       kind(text(3) == "0"), text(4));
  }
  if (std::regex_match(name, m, block)) {
    return fmt::format("resnet.encoder.stages.{}.layers.{}.layer.{}.{}.{}", before(1), text(2),
                       before(4), kind(text(3) == "conv"), text(5));
  }
  if (name.starts_with("fc.")) return "classifier.1." + name.substr(3);
  return std::nullopt;
}

// Translates names of timm's VGG and of widely copied ResNets for CIFAR.
std::optional<std::string> from_elsewhere(const std::string& name) {
  static const std::regex hidden(R"(pre_logits\.fc([12])\.(\w+))");
  static const std::regex shortcut(R"((layer\d{1,3}\.\d{1,3})\.shortcut\.([01])\.(\w+))");
  std::smatch m;
  if (std::regex_match(name, m, hidden)) {
    return fmt::format("classifier.{}.{}", m[1].str() == "1" ? 0 : 3, m[2].str());
  }
  if (std::regex_match(name, m, shortcut)) {
    return fmt::format("{}.downsample.{}.{}", m[1].str(), m[2].str(), m[3].str());
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
  static const std::regex mask(R"(h\.\d{1,4}\.attn\.(?:masked_)?bias)");
  return file_name.ends_with("num_batches_tracked") ||
         std::regex_match(without_prefixes(file_name).back(), mask);
}

bool is_conv1d_weight(std::string_view name) {
  return std::ranges::any_of(kConv1dWeights,
                             [&](std::string_view weight) { return name.ends_with(weight); });
}

}  // namespace trireme::model
