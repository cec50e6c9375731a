#include "model/names.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>

namespace trireme::model {
namespace {

using re2::RE2;

// Prefixes added by DistributedDataParallel, Lightning, torch.compile and wrapper modules.
constexpr std::array<std::string_view, 9> kPrefixes = {"module.",      "model.",    "_orig_mod.",
                                                       "net.",         "backbone.", "timm_model.",
                                                       "transformer.", "bert.",     "vit."};

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

// Names of layers of a vision transformer: in Trireme and, behind "vit.", in transformers.
struct LayerName {
  std::string_view ours, theirs;
};
constexpr std::array<LayerName, 2> kVitLayers = {
    {{"patch_embed.proj", "embeddings.patch_embeddings.projection"}, {"norm", "layernorm"}}};
// Those of the block number N, behind "blocks.N." and "encoder.layer.N.".
constexpr std::array<LayerName, 6> kVitBlockLayers = {{{"norm1", "layernorm_before"},
                                                       {"attn.qkv", "attention.attention.qkv"},
                                                       {"attn.proj", "attention.output.dense"},
                                                       {"norm2", "layernorm_after"},
                                                       {"mlp.fc1", "intermediate.dense"},
                                                       {"mlp.fc2", "output.dense"}}};
// Names of tensors that are no weight or bias of a layer.
struct TensorName {
  std::string_view ours, theirs;
};
constexpr std::array<TensorName, 2> kVitTensors = {
    {{"embed.token", "embeddings.cls_token"},
     {"embed.position", "embeddings.position_embeddings"}}};
constexpr std::array<TensorName, 3> kBertTensors = {
    {{"embeddings.weight", "embeddings.word_embeddings.weight"},
     {"embeddings.position", "embeddings.position_embeddings.weight"},
     {"embeddings.segment", "embeddings.token_type_embeddings.weight"}}};

// Layers that transformers stores as several, and the names of those, at the end of layers' names.
struct JoinedLayer {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};
const std::array<JoinedLayer, 4> kJoinedLayers = {
    {{".attention.self.qkv",
      {".attention.self.query", ".attention.self.key", ".attention.self.value"}},
     {".attention.attention.qkv",
      {".attention.attention.query", ".attention.attention.key", ".attention.attention.value"}},
     {".self_attn.qkv_proj", {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"}},
     {".mlp.gate_up_proj", {".mlp.gate_proj", ".mlp.up_proj"}}}};

// Returns the name with another end in place of `ours`, a part of it before ".weight" or ".bias".
std::string with_end(const std::string& name, std::string_view ours, std::string_view theirs) {
  const size_t dot = name.rfind('.');
  return name.substr(0, dot - ours.size()) + std::string(theirs) + name.substr(dot);
}

bool is_tensor_of(std::string_view name, std::string_view layer) {
  for (const std::string_view field : {".weight", ".bias"}) {
    if (name.ends_with(field)) return name.substr(0, name.rfind('.')).ends_with(layer);
  }
  return false;
}

template <class Names>
std::optional<std::string> translated(const Names& names, std::string_view name, auto from,
                                      auto to) {
  const auto found = std::ranges::find(names, name, from);
  if (found == names.end()) return std::nullopt;
  return std::string((*found).*to);
}

// Translates names of a vision transformer, without "vit.".
std::optional<std::string> vit_from_hugging_face(const std::string& name) {
  static const RE2 block(R"(encoder\.layer\.(\d{1,3})\.(.+)\.(weight|bias))");
  static const RE2 layer(R"((.+)\.(weight|bias))");
  std::string part, field;
  int number = 0;
  if (RE2::FullMatch(name, block, &number, &part, &field)) {
    const auto ours = translated(kVitBlockLayers, part, &LayerName::theirs, &LayerName::ours);
    if (ours) return fmt::format("blocks.{}.{}.{}", number, *ours, field);
  } else if (RE2::FullMatch(name, layer, &part, &field)) {
    const auto ours = translated(kVitLayers, part, &LayerName::theirs, &LayerName::ours);
    if (ours) return fmt::format("{}.{}", *ours, field);
  }
  return translated(kVitTensors, name, &TensorName::theirs, &TensorName::ours);
}

std::optional<std::string> vit_to_hugging_face(const std::string& name) {
  static const RE2 block(R"(blocks\.(\d{1,3})\.(.+)\.(weight|bias))");
  static const RE2 layer(R"((.+)\.(weight|bias))");
  std::string part, field;
  int number = 0;
  if (RE2::FullMatch(name, block, &number, &part, &field)) {
    const auto theirs = translated(kVitBlockLayers, part, &LayerName::ours, &LayerName::theirs);
    if (theirs) return fmt::format("vit.encoder.layer.{}.{}.{}", number, *theirs, field);
  } else if (RE2::FullMatch(name, layer, &part, &field)) {
    const auto theirs = translated(kVitLayers, part, &LayerName::ours, &LayerName::theirs);
    if (theirs) return fmt::format("vit.{}.{}", *theirs, field);
    if (part == "head") return "classifier." + field;
  }
  const auto theirs = translated(kVitTensors, name, &TensorName::ours, &TensorName::theirs);
  if (theirs) return "vit." + *theirs;
  return std::nullopt;
}

// Translates names of BERT, without "bert.". The first checkpoints call the parameters of layer
// norms gamma and beta.
std::optional<std::string> bert_from_hugging_face(const std::string& name) {
  static const RE2 norm(R"((.*LayerNorm)\.(gamma|beta))");
  if (const auto ours = translated(kBertTensors, name, &TensorName::theirs, &TensorName::ours)) {
    return ours;
  }
  std::string layer, field;
  if (RE2::FullMatch(name, norm, &layer, &field)) {
    return fmt::format("{}.{}", layer, field == "gamma" ? "weight" : "bias");
  }
  if (name.starts_with("cls.predictions.decoder.")) {
    return "cls.predictions." + name.substr(name.rfind('.') + 1);
  }
  return std::nullopt;
}

std::optional<std::string> bert_to_hugging_face(const std::string& name) {
  static const RE2 body(
      R"(embeddings\.LayerNorm\.\w+|encoder\.layer\.\d{1,3}\..+|pooler\.dense\.\w+)");
  static const RE2 head(R"(classifier\.(?:weight|bias)|cls\.predictions\.[\w.]+)");
  if (const auto theirs = translated(kBertTensors, name, &TensorName::ours, &TensorName::theirs)) {
    return "bert." + *theirs;
  }
  if (RE2::FullMatch(name, body)) return "bert." + name;
  if (RE2::FullMatch(name, head)) return name;
  return std::nullopt;
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
  if (auto bert = bert_from_hugging_face(name)) return bert;
  return vit_from_hugging_face(name);
}

// The body of Llama is named as in transformers but for this prefix.
std::optional<std::string> llama_to_hugging_face(const std::string& name) {
  static const RE2 body(R"(embed_tokens\.weight|layers\.\d{1,3}\..+|norm\.weight)");
  if (RE2::FullMatch(name, body)) return "model." + name;
  if (name == "lm_head.weight") return name;
  return std::nullopt;
}

std::optional<std::string> to_hugging_face(std::string_view network, const std::string& name) {
  if (is_llama(network)) return llama_to_hugging_face(name);
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
  if (auto vit = vit_to_hugging_face(name)) return vit;
  return bert_to_hugging_face(name);
}

// Translates names of timm's VGG and vision transformers and of widely copied ResNets for CIFAR.
std::optional<std::string> from_elsewhere(const std::string& name) {
  static const RE2 hidden(R"(pre_logits\.fc([12])\.(\w+))");
  static const RE2 shortcut(R"((layer\d{1,3}\.\d{1,3})\.shortcut\.([01])\.(\w+))");
  if (name == "cls_token") return "embed.token";
  if (name == "pos_embed") return "embed.position";
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

bool is_llama(std::string_view network) { return network.starts_with("llama"); }

std::optional<std::string> name_in(NameStyle style, std::string_view network,
                                   const std::string& name) {
  return style == NameStyle::kHuggingFace ? to_hugging_face(network, name) : name;
}

Shape shape_in(NameStyle style, const std::string& name, const Shape& shape) {
  if (style != NameStyle::kHuggingFace) return shape;
  const bool listed = std::ranges::find(kVitTensors, name, &TensorName::ours) != kVitTensors.end();
  if (!listed) return shape;
  return shape.rank() == 1 ? Shape{1, 1, shape[0]} : Shape{1, shape[0], shape[1]};
}

std::vector<Part> parts_of(const std::string& file_name, const Shape& shape) {
  const auto layer = std::ranges::find_if(kJoinedLayers, [&](const JoinedLayer& joined) {
    return is_tensor_of(file_name, joined.ours);
  });
  if (layer == kJoinedLayers.end() || shape.rank() == 0) return {};
  const auto count = std::ssize(layer->theirs);
  // With fewer heads of keys and values than of queries, parts are unequal.
  const int64_t first = count == 3 && shape.rank() == 2 ? shape[1] : shape[0] / count;
  const int64_t other = (shape[0] - first) / (count - 1);
  if (other < 1 || first + (count - 1) * other != shape[0]) return {};
  std::vector<Part> parts;
  for (const std::string_view theirs : layer->theirs) {
    parts.push_back({with_end(file_name, layer->ours, theirs), parts.empty() ? first : other});
  }
  return parts;
}

std::optional<JoinedName> joined_name(const std::string& file_name) {
  for (const JoinedLayer& joined : kJoinedLayers) {
    const std::string_view first = joined.theirs.front();
    if (!is_tensor_of(file_name, first)) continue;
    JoinedName whole{with_end(file_name, first, joined.ours), {}};
    for (const std::string_view part : joined.theirs) {
      whole.parts.push_back(with_end(file_name, first, part));
    }
    return whole;
  }
  return std::nullopt;
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
  static const RE2 frequencies(R"(layers\.\d{1,4}\.self_attn\.rotary_emb\.inv_freq)");
  const std::string name = without_prefixes(file_name).back();
  return file_name.ends_with("num_batches_tracked") || RE2::FullMatch(name, mask) ||
         RE2::FullMatch(name, frequencies) || name == "embeddings.position_ids" ||
         name == "embeddings.token_type_ids";
}

std::string_view bert_head_of(std::string_view name) {
  if (name.starts_with("bert.")) name.remove_prefix(5);
  for (const std::string_view head : {"pooler.", "cls."}) {
    if (name.starts_with(head)) return head;
  }
  return {};
}

bool is_conv1d_weight(std::string_view name) {
  return std::ranges::any_of(kConv1dWeights,
                             [&](std::string_view weight) { return name.ends_with(weight); });
}

}  // namespace trireme::model
