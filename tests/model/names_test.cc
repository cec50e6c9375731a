#include "model/names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness.h"

namespace trireme::model {
namespace {

// Returns the tensor of a network with these `names` that the file's tensor is matched to.
std::string found(const std::string& file_name, const std::vector<std::string>& names,
                  const std::string& head = "fc") {
  for (const NameGuess& guess : name_guesses(file_name, head)) {
    if (std::ranges::find(names, guess.name) != names.end()) return guess.name;
  }
  return "";
}

std::vector<std::string> names_of(const std::string& zoo_name) {
  const Graph graph = build_graph(zoo(zoo_name), zoo_input(zoo_name));
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    for (const auto& p : node.signature.parameters) names.push_back(node.name + "." + p.name);
    for (const auto& v : node.signature.running_stats) names.push_back(node.name + "." + v.name);
  }
  return names;
}

// Names in ResNetForImageClassification of transformers 5.23, with basic and bottleneck layers.
TEST(Names, TranslatesHuggingFaceResNets) {
  const std::pair<const char*, const char*> kNames[] = {
      {"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
      {"bn1.running_var", "resnet.embedder.embedder.normalization.running_var"},
      {"layer1.0.conv1.weight", "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"},
      {"layer3.5.bn3.bias", "resnet.encoder.stages.2.layers.5.layer.2.normalization.bias"},
      {"layer2.0.downsample.0.weight",
       "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"},
      {"layer2.0.downsample.1.running_mean",
       "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_mean"},
      {"fc.bias", "classifier.1.bias"},
  };
  for (const auto& [name, file_name] : kNames) {
    EXPECT_EQ(name_in(NameStyle::kHuggingFace, "", name), file_name);
    EXPECT_EQ(found(file_name, {name}), name);
  }
  EXPECT_EQ(found("embedder.embedder.convolution.weight", {"conv1.weight"}), "conv1.weight");
}

TEST(Names, TranslatesEveryResNetInBothDirections) {
  for (const char* network : {"resnet18", "resnet34", "resnet50", "resnet20"}) {
    const std::vector<std::string> names = names_of(network);
    for (const std::string& name : names) {
      const auto file_name = name_in(NameStyle::kHuggingFace, "", name);
      ASSERT_TRUE(file_name) << name;
      EXPECT_EQ(found(*file_name, names), name);
      EXPECT_EQ(name_in(NameStyle::kTorchvision, "", name), name);
    }
  }
}

TEST(Names, HuggingFaceNamesExistOnlyForResNets) {
  EXPECT_FALSE(name_in(NameStyle::kHuggingFace, "", "features.0.weight"));
  EXPECT_FALSE(name_in(NameStyle::kHuggingFace, "", "conv2.weight"));
  EXPECT_TRUE(has_torchvision_names("vgg16-bn"));
  EXPECT_FALSE(has_torchvision_names("lenet"));
}

TEST(Names, RemovesPrefixesOfFrameworks) {
  for (const char* prefix : {"module.", "model.", "_orig_mod.", "backbone.", "module._orig_mod.",
                             "model.backbone.", "timm_model.", "transformer."}) {
    EXPECT_EQ(found(std::string(prefix) + "bn1.weight", {"bn1.weight"}), "bn1.weight") << prefix;
  }
  // An exact match comes first.
  EXPECT_EQ(found("model.weight", {"weight", "model.weight"}), "model.weight");
}

TEST(Names, RecognizesTheLastLayer) {
  for (const char* file_name : {"fc", "head", "head.fc", "classifier", "classifier.1", "linear"}) {
    EXPECT_EQ(found(file_name + std::string(".bias"), {"classifier.6.bias"}, "classifier.6"),
              "classifier.6.bias");
  }
  EXPECT_EQ(found("classifier.1.weight", names_of("alexnet"), "classifier.6"),
            "classifier.1.weight");
}

TEST(Names, TranslatesTimmAndResNetsForCifar) {
  const std::vector<std::string> vgg = names_of("vgg11");
  EXPECT_EQ(found("pre_logits.fc1.weight", vgg, "classifier.6"), "classifier.0.weight");
  EXPECT_EQ(found("pre_logits.fc2.bias", vgg, "classifier.6"), "classifier.3.bias");
  EXPECT_EQ(found("head.fc.weight", vgg, "classifier.6"), "classifier.6.weight");
  const std::vector<std::string> cifar = names_of("resnet18-cifar");
  EXPECT_EQ(found("layer2.0.shortcut.0.weight", cifar), "layer2.0.downsample.0.weight");
  EXPECT_EQ(found("module.linear.weight", cifar), "fc.weight");
}

TEST(Names, TranslatesTheOnlyNameOfGpt2ThatDiffers) {
  EXPECT_EQ(found("transformer.wpe.weight", names_of("gpt2-124m")), "wte.position");
  EXPECT_EQ(found("transformer.h.11.mlp.c_fc.bias", names_of("gpt2-124m")), "h.11.mlp.c_fc.bias");
}

TEST(Names, TranslatesLlamaInBothDirections) {
  const std::vector<std::string> names = names_of("llama-mini");
  for (const std::string& name : names) {
    const auto file_name = name_in(NameStyle::kHuggingFace, "llama-mini", name);
    ASSERT_TRUE(file_name) << name;
    EXPECT_EQ(*file_name, name.starts_with("lm_head") ? name : "model." + name);
    EXPECT_EQ(found(*file_name, names, "lm_head"), name);
  }
  EXPECT_FALSE(name_in(NameStyle::kHuggingFace, "llama-mini", "fc.weight"));
  EXPECT_TRUE(is_bookkeeping("model.layers.0.self_attn.rotary_emb.inv_freq"));
}

TEST(Names, DividesQueriesKeysAndValues) {
  const auto rows_of = [](const char* name, const Shape& shape) {
    std::vector<std::pair<std::string, int64_t>> parts;
    for (const Part& part : parts_of(name, shape)) parts.emplace_back(part.name, part.rows);
    return parts;
  };
  using Rows = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(rows_of("a.self_attn.qkv_proj.weight", {40, 24}),
            (Rows{{"a.self_attn.q_proj.weight", 24},
                  {"a.self_attn.k_proj.weight", 8},
                  {"a.self_attn.v_proj.weight", 8}}));
  EXPECT_EQ(rows_of("a.attention.self.qkv.bias", {6}), (Rows{{"a.attention.self.query.bias", 2},
                                                             {"a.attention.self.key.bias", 2},
                                                             {"a.attention.self.value.bias", 2}}));
  EXPECT_EQ(rows_of("a.mlp.gate_up_proj.weight", {8, 3}),
            (Rows{{"a.mlp.gate_proj.weight", 4}, {"a.mlp.up_proj.weight", 4}}));
  // Not the rows of heads, of another layer, of one part.
  EXPECT_TRUE(parts_of("a.self_attn.qkv_proj.weight", {41, 24}).empty());
  EXPECT_TRUE(parts_of("a.self_attn.o_proj.weight", {24, 24}).empty());
  EXPECT_TRUE(parts_of("a.self_attn.qkv_proj.weight", {24, 24}).empty());
  EXPECT_TRUE(parts_of("blocks.0.attn.qkv.weight", {96, 32}).empty());
}

TEST(Names, JoinsQueriesKeysAndValues) {
  const std::string layer = "bert.encoder.layer.3.attention.self.";
  const auto joined = joined_name(layer + "query.weight");
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->name, layer + "qkv.weight");
  EXPECT_EQ(joined->parts, (std::vector<std::string>{layer + "query.weight", layer + "key.weight",
                                                     layer + "value.weight"}));
  const auto name_of = [](const char* file_name) {
    return joined_name(file_name).value_or(JoinedName{}).name;
  };
  EXPECT_EQ(name_of("encoder.layer.0.attention.attention.query.bias"),
            "encoder.layer.0.attention.attention.qkv.bias");
  EXPECT_EQ(name_of("model.layers.3.mlp.gate_proj.weight"),
            "model.layers.3.mlp.gate_up_proj.weight");
  EXPECT_EQ(name_of("model.layers.3.mlp.up_proj.weight"), "");
  EXPECT_EQ(name_of("bert.encoder.layer.3.attention.self.key.weight"), "");
  EXPECT_EQ(name_of("query.weight"), "");
}

// Names in BertForSequenceClassification, BertForMaskedLM and ViTForImageClassification.
TEST(Names, TranslatesEncodersOfHuggingFace) {
  const std::pair<const char*, const char*> kNames[] = {
      {"embeddings.weight", "bert.embeddings.word_embeddings.weight"},
      {"embeddings.position", "bert.embeddings.position_embeddings.weight"},
      {"embeddings.segment", "bert.embeddings.token_type_embeddings.weight"},
      {"embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.bias"},
      {"encoder.layer.11.attention.self.qkv.weight",
       "bert.encoder.layer.11.attention.self.qkv.weight"},
      {"encoder.layer.0.output.dense.bias", "bert.encoder.layer.0.output.dense.bias"},
      {"pooler.dense.weight", "bert.pooler.dense.weight"},
      {"classifier.bias", "classifier.bias"},
      {"cls.predictions.bias", "cls.predictions.bias"},
      {"cls.predictions.transform.LayerNorm.weight", "cls.predictions.transform.LayerNorm.weight"},
      {"embed.token", "vit.embeddings.cls_token"},
      {"embed.position", "vit.embeddings.position_embeddings"},
      {"patch_embed.proj.bias", "vit.embeddings.patch_embeddings.projection.bias"},
      {"blocks.3.norm1.weight", "vit.encoder.layer.3.layernorm_before.weight"},
      {"blocks.3.norm2.bias", "vit.encoder.layer.3.layernorm_after.bias"},
      {"blocks.11.attn.qkv.bias", "vit.encoder.layer.11.attention.attention.qkv.bias"},
      {"blocks.0.attn.proj.weight", "vit.encoder.layer.0.attention.output.dense.weight"},
      {"blocks.0.mlp.fc1.weight", "vit.encoder.layer.0.intermediate.dense.weight"},
      {"blocks.0.mlp.fc2.weight", "vit.encoder.layer.0.output.dense.weight"},
      {"norm.weight", "vit.layernorm.weight"},
      {"head.weight", "classifier.weight"},
  };
  for (const auto& [name, file_name] : kNames) {
    EXPECT_EQ(name_in(NameStyle::kHuggingFace, "", name), file_name);
    EXPECT_EQ(found(file_name, {name}, "head"), name);
  }
  EXPECT_EQ(shape_in(NameStyle::kHuggingFace, "embed.token", {8}), (Shape{1, 1, 8}));
  EXPECT_EQ(shape_in(NameStyle::kHuggingFace, "embed.position", {5, 8}), (Shape{1, 5, 8}));
  EXPECT_EQ(shape_in(NameStyle::kTrireme, "embed.position", {5, 8}), (Shape{5, 8}));
  EXPECT_EQ(shape_in(NameStyle::kHuggingFace, "head.weight", {5, 8}), (Shape{5, 8}));
}

TEST(Names, TranslatesEveryEncoderInBothDirections) {
  for (const char* network : {"bert-mini", "vit-tiny"}) {
    const std::vector<std::string> names = names_of(network);
    const std::string head = network[0] == 'b' ? "classifier" : "head";
    for (const std::string& name : names) {
      const auto file_name = name_in(NameStyle::kHuggingFace, "", name);
      ASSERT_TRUE(file_name) << name;
      EXPECT_EQ(found(*file_name, names, head), name);
    }
  }
}

TEST(Names, TranslatesOtherNamesOfEncoders) {
  const std::vector<std::string> vit = names_of("vit-tiny"), bert = names_of("bert-mini");
  EXPECT_EQ(found("cls_token", vit, "head"), "embed.token");
  EXPECT_EQ(found("pos_embed", vit, "head"), "embed.position");
  EXPECT_EQ(found("blocks.2.attn.qkv.weight", vit, "head"), "blocks.2.attn.qkv.weight");
  EXPECT_EQ(found("bert.embeddings.LayerNorm.gamma", bert, "classifier"),
            "embeddings.LayerNorm.weight");
  EXPECT_EQ(found("bert.encoder.layer.1.output.LayerNorm.beta", bert, "classifier"),
            "encoder.layer.1.output.LayerNorm.bias");
  EXPECT_TRUE(is_bookkeeping("bert.embeddings.position_ids"));
}

TEST(Names, KnowsTheHeadsOfBert) {
  EXPECT_EQ(bert_head_of("bert.pooler.dense.weight"), "pooler.");
  EXPECT_EQ(bert_head_of("cls.seq_relationship.weight"), "cls.");
  EXPECT_EQ(bert_head_of("classifier.weight"), "");
}

TEST(Names, CountersAndMasksAreBookkeeping) {
  EXPECT_TRUE(is_bookkeeping("layer1.0.bn1.num_batches_tracked"));
  EXPECT_FALSE(is_bookkeeping("layer1.0.bn1.running_mean"));
  for (const char* prefix : {"", "transformer.", "_orig_mod.transformer."}) {
    EXPECT_TRUE(is_bookkeeping(std::string(prefix) + "h.0.attn.bias"));
    EXPECT_TRUE(is_bookkeeping(std::string(prefix) + "h.11.attn.masked_bias"));
    EXPECT_FALSE(is_bookkeeping(std::string(prefix) + "h.0.attn.c_attn.bias"));
  }
}

// std::regex used a stack frame for each character.
TEST(Names, MayBeLong) {
  for (const std::string start : {"resnet.encoder.stages.0.layers.0.shortcut.conv",
                                  "layer1.0.conv1.", "pre_logits.fc1.", "h.0.attn."}) {
    const std::string name = start + std::string(1'000'000, 'a');
    EXPECT_FALSE(name_guesses(name, "fc").empty());
    EXPECT_FALSE(is_bookkeeping(name));
    EXPECT_FALSE(name_in(NameStyle::kHuggingFace, "", name).value_or("").starts_with("classifier"));
  }
}

TEST(Names, KnowsTheWeightsOfConv1dLayers) {
  EXPECT_TRUE(is_conv1d_weight("h.0.attn.c_proj.weight"));
  EXPECT_TRUE(is_conv1d_weight("h.11.mlp.c_proj.weight"));
  EXPECT_FALSE(is_conv1d_weight("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(is_conv1d_weight("wte.weight"));
}

}  // namespace
}  // namespace trireme::model
