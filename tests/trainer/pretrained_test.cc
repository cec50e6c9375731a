// Networks with weights of other frameworks. ResNet-18 computes the logits of PyTorch; its weights
// are a function of name and index (tests/golden/make_logits.py). The weights of GPT-2 are those of
// tests/golden/make_decoders.py; tests/launch/decoder_weights_test.cc computes its logits.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "model/names.h"
#include "temporary_folder.h"
#include "tests/golden/formula.h"
#include "tests/model/harness.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using golden::uniform;
using ::testing::HasSubstr;

constexpr int64_t kRows = 2;
constexpr std::array<float, 20> kLogits = {
    49.87324f,  -78.74206f, 61.39257f, 165.292f,   53.41193f,   // the first image
    -9.524533f, -105.6278f, 100.0644f, 3.159205f,  -6.938575f,  //
    46.18596f,  -86.85888f, 72.46216f, 165.9611f,  38.31197f,   // the second
    -30.877f,   -99.40085f, 96.61258f, -2.189353f, -4.491848f};

std::vector<float> values_of(const std::string& name, const Shape& shape) {
  const bool around_one = name.ends_with("weight") || name.ends_with("running_var");
  const double spread =
      std::sqrt(6.0 * static_cast<double>(shape[0]) / static_cast<double>(shape.elements()));
  std::vector<float> values;
  for (const double u : uniform(name, shape.elements())) {
    values.push_back(static_cast<float>(shape.rank() > 1 ? (2 * u - 1) * spread
                                        : around_one     ? u + 0.5
                                                         : 0.2 * (u - 0.5)));
  }
  return values;
}

// Returns all tensors of the network, with names of this style.
model::Weights weights_of(const model::Graph& graph, model::NameStyle style) {
  model::Weights weights;
  const auto add = [&](const std::string& name, const Shape& shape) {
    weights[*model::name_in(style, graph.name, name)] = {shape, values_of(name, shape)};
  };
  for (const model::Node& node : graph.nodes) {
    for (const auto& p : node.signature.parameters) add(node.name + "." + p.name, p.shape);
    for (const auto& v : node.signature.running_stats) add(node.name + "." + v.name, v.shape);
  }
  return weights;
}

void write_weights(const fs::path& path, const model::Weights& weights) {
  std::vector<SafetensorsEntry> entries;
  std::string bytes;
  for (const auto& [name, weight] : weights) {
    entries.push_back({name, weight.shape});
    bytes.append(reinterpret_cast<const char*>(weight.values.data()),
                 weight.values.size() * sizeof(float));
  }
  spill(path, safetensors_header(entries) + bytes);
}

class Pretrained : public ::testing::TestWithParam<model::NameStyle> {};

TEST_P(Pretrained, ResNet18ComputesTheLogitsOfPyTorch) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "resnet18.safetensors";
  const model::ModelInput format = model::classified({3, 64, 64}, 10);
  model::TestNetwork net(model::zoo("resnet18"), format, model::cpu(),
                         {.batch = kRows, .training = false, .output = true});
  write_weights(path, weights_of(net.graph(), GetParam()));
  const InitialValues initial = read_initial_values(read_stored_model(path), net.graph());
  EXPECT_EQ(initial.summary,
            std::string("102 of 102 tensors from resnet18.safetensors (") +
                (GetParam() == model::NameStyle::kHuggingFace ? "Hugging Face" : "torchvision") +
                " names)");
  for (const model::Parameter& parameter : net.parameters.all) {
    net.set_value(parameter, initial.weights.at(parameter.name).values);
  }
  for (const model::RunningStatistic& value : net.parameters.running_stats) {
    net.set_running_stat(value, initial.weights.at(value.name).values);
  }
  model::TestBatch batch(format, kRows, 1);
  const std::vector<double> pixels = uniform("input", std::ssize(batch.inputs));
  for (size_t i = 0; i < pixels.size(); ++i) {
    batch.inputs[i] = static_cast<float>(4 * pixels[i] - 2);
  }
  net.run(batch);
  const std::vector<float> logits = net.output();
  ASSERT_EQ(logits.size(), kLogits.size());
  EXPECT_LT(model::relative_error(logits, {kLogits.begin(), kLogits.end()}), 1e-5);
  for (size_t i = 0; i < kLogits.size(); ++i) EXPECT_NEAR(logits[i], kLogits[i], 1e-2) << i;
}

INSTANTIATE_TEST_SUITE_P(All, Pretrained,
                         testing::Values(model::NameStyle::kTorchvision,
                                         model::NameStyle::kHuggingFace),
                         [](const auto& style) {
                           return style.param == model::NameStyle::kHuggingFace ? "HuggingFace"
                                                                                : "Torchvision";
                         });

constexpr int64_t kPositions = 80, kVocabSize = 61;  // of tests/golden/gpt2

class Gpt2Weights : public ::testing::Test {
 protected:
  static model::Graph graph(int64_t blocks = 2, int64_t width = 32, int64_t length = kPositions,
                            int64_t vocab_size = kVocabSize) {
    ModelConfig config = model::zoo("gpt2-124m");
    config.mutable_zoo()->set_blocks(blocks);
    config.mutable_zoo()->set_width(width);
    config.mutable_zoo()->set_heads(4);
    return model::build_graph(config, model::token_input(length, vocab_size));
  }
  InitialValues read(const model::Weights& weights, const model::Graph& network = graph()) const {
    const fs::path path = folder_.path() / "gpt2.safetensors";
    write_weights(path, weights);
    return read_initial_values(read_stored_model(path), network);
  }
  std::string error_of(const model::Weights& weights, const model::Graph& network = graph()) const {
    try {
      read(weights, network);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }
  // Expects that the tensors are read as those of the file of transformers.
  void expect_same(const model::Weights& weights) const {
    const InitialValues initial = read(weights);
    const model::Weights wanted = read(file_).weights;
    EXPECT_THAT(initial.summary, ::testing::StartsWith("28 of 28 tensors"));
    for (const auto& [name, weight] : initial.weights) {
      EXPECT_EQ(weight.shape, wanted.at(name).shape) << name;
      EXPECT_EQ(weight.values, wanted.at(name).values) << name;
    }
  }

  const TemporaryFolder folder_;
  const model::Weights file_ = read_weights(TRIREME_SOURCE "/tests/golden/gpt2/model.safetensors");
};

TEST_F(Gpt2Weights, TransposesConv1d) {
  const InitialValues initial = read(file_);
  EXPECT_EQ(initial.summary, "28 of 28 tensors from gpt2.safetensors (Hugging Face names)");
  EXPECT_EQ(initial.weights.at("wte.position").values, file_.at("transformer.wpe.weight").values);
  for (const std::string name : {"h.0.attn.c_attn.weight", "h.1.attn.c_proj.weight",
                                 "h.0.mlp.c_fc.weight", "h.1.mlp.c_proj.weight"}) {
    const model::Weight& theirs = file_.at("transformer." + name);
    const model::Weight& ours = initial.weights.at(name);
    ASSERT_EQ(ours.shape, (Shape{theirs.shape[1], theirs.shape[0]})) << name;
    const auto inputs = static_cast<size_t>(theirs.shape[0]);
    const auto outputs = static_cast<size_t>(theirs.shape[1]);
    EXPECT_EQ(ours.values[3 * inputs + 7], theirs.values[7 * outputs + 3]) << name;
    EXPECT_EQ(ours.values[31 * inputs + 1], theirs.values[outputs + 31]) << name;
  }
}

TEST_F(Gpt2Weights, ReadsFilesWithoutThePrefixAndWithMasks) {
  model::Weights weights;
  for (const auto& [name, weight] : file_) weights[name.substr(name.find('.') + 1)] = weight;
  ASSERT_TRUE(weights.contains("h.0.ln_1.weight"));
  expect_same(weights);
  weights["h.0.attn.bias"] = {{1, 1, 2, 2}, {1, 0, 1, 1}};
  weights["h.0.attn.masked_bias"] = {{}, {-10000}};
  expect_same(weights);
}

TEST_F(Gpt2Weights, ReadsTheTiedHeadUnderEitherName) {
  model::Weights weights = file_;
  weights["lm_head.weight"] = file_.at("transformer.wte.weight");
  expect_same(weights);
  weights.erase("transformer.wte.weight");
  expect_same(weights);
  weights["transformer.wte.weight"] = file_.at("transformer.wte.weight");
  weights["lm_head.weight"].values[5] += 1;
  EXPECT_THAT(error_of(weights), HasSubstr("\n  'lm_head.weight' differs from "
                                           "'transformer.wte.weight', but the network has one "
                                           "tensor for both"));
}

// A run of Trireme, and a model of nanoGPT: its names are those of transformers, but its layers are
// PyTorch's Linear.
TEST_F(Gpt2Weights, DoesNotTransposeLinear) {
  model::Weights ours = read(file_).weights;
  expect_same(ours);
  model::Weights nano_gpt;
  for (const auto& [name, weight] : ours) {
    nano_gpt["_orig_mod.transformer." + (name == "wte.position" ? "wpe.weight" : name)] = weight;
  }
  nano_gpt["_orig_mod.lm_head.weight"] = ours.at("wte.weight");
  expect_same(nano_gpt);
}

TEST_F(Gpt2Weights, RejectsFilesOfOtherSizes) {
  const std::string wider = error_of(file_, graph(2, 64));
  EXPECT_THAT(wider, HasSubstr("gpt2.safetensors does not fit the network:\n"));
  EXPECT_THAT(wider, HasSubstr("'transformer.h.0.attn.c_attn.weight' is [32, 96], but the network "
                               "needs [64, 192]\n"));
  EXPECT_THAT(error_of(file_, graph(3)), HasSubstr("'h.2.attn.c_attn.bias' is missing"));
  EXPECT_THAT(error_of(file_, graph(1)),
              HasSubstr("'transformer.h.1.attn.c_attn.bias' is not in the network"));
  EXPECT_THAT(error_of(file_, graph(2, 32, kPositions, 64)),
              HasSubstr("'transformer.wte.weight' is [61, 32], but the network needs [64, 32]"));
  EXPECT_THAT(error_of(file_, graph(2, 32, 90)),
              HasSubstr("'transformer.wpe.weight' is [80, 32], but the network needs [90, 32]"));
}

TEST_F(Gpt2Weights, ReadsTheFirstPositionsForShorterSamples) {
  const InitialValues initial = read(file_, graph(2, 32, 40));
  EXPECT_EQ(initial.summary,
            "28 of 28 tensors from gpt2.safetensors (Hugging Face names); the first 40 of 80 "
            "positions");
  std::vector<float> wanted = file_.at("transformer.wpe.weight").values;
  wanted.resize(40 * 32);
  EXPECT_EQ(initial.weights.at("wte.position").values, wanted);
}

// Compares the config.json of tests/golden, with changed entries, with a network of the zoo.
class ConfigJson : public ::testing::Test {
 protected:
  // Returns the error or, if there is none, the text about unknown entries.
  std::string compare(const std::string& name, const std::string& zoo, const std::string& changes,
                      const model::ModelInput& input = model::token_input(48, kVocabSize)) const {
    nlohmann::json entries = nlohmann::json::parse(
        slurp(fs::path(TRIREME_SOURCE "/tests/golden") / name / "config.json"));
    entries.merge_patch(nlohmann::json::parse(changes));
    spill(folder_.path() / "config.json", entries.dump());
    ModelConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "zoo { blocks: 2 width: 32 " + zoo + " }", &config));
    try {
      return TransformersConfig(folder_.path() / "config.json")
          .compare(model::network_of(config, input), input.input.shape[0], /*zoo=*/true);
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  const TemporaryFolder folder_;
};

TEST_F(ConfigJson, DescribesGpt2) {
  const auto gpt2 = [&](const std::string& changes, const std::string& more = "") {
    return compare("gpt2", "name: 'gpt2-124m' heads: 4 " + more, changes);
  };
  EXPECT_EQ(gpt2("{}"), "");
  EXPECT_EQ(gpt2(R"({"attn_pdrop": 0.5, "use_cache": false, "_name_or_path": "x", "n_ctx": 80,
                     "task_specific_params": {"a": 1}, "eos_token_id": 9, "torch_dtype": "f"})"),
            "");
  EXPECT_THAT(gpt2(R"({"n_head": 2})"),
              HasSubstr("config.json describes another network than the configuration:\n"
                        "  'n_head' is 2, but attention.heads of layer 'h.0.attn' is 4 (set "
                        "model.zoo.heads: 2)"));
  EXPECT_THAT(gpt2(R"({"n_head": null})"),
              HasSubstr("'n_head' is missing, for which transformers takes 12"));
  EXPECT_THAT(gpt2(R"({"scale_attn_by_inverse_layer_idx": true})"),
              HasSubstr("'scale_attn_by_inverse_layer_idx' is true, but Trireme computes only"));
  EXPECT_THAT(gpt2(R"({"scale_attn_weights": false})"), HasSubstr("'scale_attn_weights' is false"));
  EXPECT_THAT(gpt2(R"({"activation_function": "relu"})"),
              HasSubstr("'activation_function' is \"relu\", but layer 'h.0.mlp.act' computes "
                        "gelu_tanh"));
  EXPECT_THAT(gpt2(R"({"activation_function": "quick_gelu"})"), HasSubstr("no such activation"));
  EXPECT_THAT(gpt2(R"({"layer_norm_epsilon": 1e-6})"),
              HasSubstr("'layer_norm_epsilon' is 1e-06, but layer_norm.epsilon of layer "
                        "'h.0.ln_1' is 1e-05 (set model.zoo.norm_epsilon: 1e-06)"));
  EXPECT_EQ(gpt2(R"({"layer_norm_epsilon": 1e-6})", "norm_epsilon: 1e-6"), "");
  EXPECT_THAT(gpt2(R"({"n_head": "4"})"), HasSubstr("'n_head' is \"4\", but must be a number"));
  EXPECT_THAT(gpt2(R"({"model_type": "gemma"})"), HasSubstr("'model_type' is \"gemma\", but only"));
  EXPECT_EQ(gpt2(R"({"new_scale": 2, "new_flag": false, "x\n": "y"})"),
            "config.json has entries that are not known and not compared: new_scale, x\\n");
  EXPECT_THAT(gpt2(R"({"model_type": null})"), HasSubstr("is not compared"));
}

TEST_F(ConfigJson, DescribesLlama) {
  const auto llama = [&](const std::string& changes) {
    return compare(
        "llama", "name: 'llama-mini' heads: 4 kv_heads: 2 mlp_width: 56 rotary_base: 500", changes);
  };
  EXPECT_EQ(llama("{}"), "");
  EXPECT_EQ(llama(R"({"rope_parameters": null, "rope_theta": 500})"), "");
  EXPECT_EQ(llama(R"({"model_type": "mistral", "sliding_window": 48})"), "");
  EXPECT_EQ(llama(R"({"model_type": "mistral", "sliding_window": null})"), "");
  EXPECT_THAT(llama(R"({"model_type": "mistral", "sliding_window": 47})"),
              HasSubstr("'sliding_window' is 47, but the network attends to all tokens of samples "
                        "of 48; shorten the samples to at most 47"));
  EXPECT_THAT(llama(R"({"sliding_window": 16})"), HasSubstr("'sliding_window' is 16"));
  EXPECT_EQ(llama(R"({"sliding_window": 16, "use_sliding_window": false})"), "");
  EXPECT_THAT(llama(R"({"layer_types": ["full_attention", "linear_attention"]})"),
              HasSubstr("'layer_types' is \"linear_attention\""));
  EXPECT_THAT(llama(R"({"num_key_value_heads": 4})"),
              HasSubstr("attention.kv_heads of layer 'layers.0.self_attn' is 2 (set "
                        "model.zoo.kv_heads: 4)"));
  EXPECT_THAT(llama(R"({"rope_parameters": {"rope_theta": 10000}})"),
              HasSubstr("'rope_parameters.rope_theta' is 10000, but attention.rotary.base of layer "
                        "'layers.0.self_attn' is 500 (set model.zoo.rotary_base: 10000)"));
  EXPECT_THAT(llama(R"({"rope_parameters": null})"),
              HasSubstr("'rope_theta' is missing, for which transformers takes 10000"));
  EXPECT_THAT(llama(R"({"rope_parameters": {"rope_type": "llama3", "factor": 8}})"),
              HasSubstr("'rope_parameters.rope_type' is \"llama3\""));
  EXPECT_THAT(llama(R"({"rope_parameters": null, "rope_theta": 500,
                        "rope_scaling": {"type": "linear", "factor": 2}})"),
              HasSubstr("'rope_scaling.type' is \"linear\""));
  EXPECT_THAT(llama(R"({"partial_rotary_factor": 0.5})"),
              HasSubstr("'partial_rotary_factor' is 0.5"));
  EXPECT_THAT(llama(R"({"rms_norm_eps": null})"), HasSubstr("transformers takes 1e-06"));
  EXPECT_THAT(llama(R"({"hidden_act": "gelu"})"), HasSubstr("'layers.0.mlp.act' computes silu"));
}

TEST_F(ConfigJson, DescribesEncoders) {
  const model::ModelInput labels = model::labeled_tokens(20, 37, 4);
  const std::string bert = "name: 'bert-mini' heads: 4";
  EXPECT_EQ(compare("encoders/bert", bert, "{}", labels), "");
  EXPECT_THAT(compare("encoders/bert", bert, R"({"is_decoder": true})", labels),
              HasSubstr("'is_decoder' is true, but attention.causal of layer "
                        "'encoder.layer.0.attention.self' is false"));
  EXPECT_THAT(
      compare("encoders/bert", bert, R"({"position_embedding_type": "relative_key"})", labels),
      HasSubstr("'position_embedding_type' is \"relative_key\""));
  EXPECT_THAT(compare("encoders/bert", bert, R"({"num_attention_heads": 8})", labels),
              HasSubstr("'num_attention_heads' is 8"));
  const model::ModelInput images = model::classified({3, 12, 12}, 5);
  EXPECT_EQ(compare("encoders/vit", "name: 'vit-tiny' patch: 4 heads: 4", "{}", images), "");
  EXPECT_THAT(compare("encoders/vit", "name: 'vit-tiny' patch: 4 heads: 4",
                      R"({"layer_norm_eps": 1e-12})", images),
              HasSubstr("(set model.zoo.norm_epsilon: 1e-12)"));
}

// The embedding reads the characters that the outputs stand for.
TEST_F(Gpt2Weights, RejectsTokensOfAnotherMeaning) {
  const fs::path path = folder_.path() / "gpt2.safetensors";
  write_weights(path, file_);
  StoredModel stored = read_stored_model(path);
  for (char c = 'A'; std::ssize(stored.class_names) < kVocabSize; ++c) {
    stored.class_names.emplace_back(1, c);
  }
  const model::Graph network = graph();
  EXPECT_EQ(read_initial_values(stored, network, stored.class_names).weights.size(), 28U);
  std::vector<std::string> others = stored.class_names;
  others.back() = "!";
  try {
    read_initial_values(stored, network, others);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("its tokens are 'A', 'B', 'C'"));
  }
}

TEST_F(Gpt2Weights, ListsMissingAndUnknownTensors) {
  model::Weights weights = file_;
  weights.erase("transformer.ln_f.bias");
  weights["transformer.h.0.crossattention.q_attn.weight"] = {{32, 32}, std::vector<float>(1024)};
  const std::string error = error_of(weights);
  EXPECT_THAT(error, HasSubstr("\n  'ln_f.bias' is missing"));
  EXPECT_THAT(error, HasSubstr("\n  'transformer.h.0.crossattention.q_attn.weight' is not in the "
                               "network"));
}

}  // namespace
}  // namespace trireme::train
