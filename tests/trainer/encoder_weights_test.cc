// BERT and vision transformers with weights that transformers has saved compute the logits of
// transformers (tests/golden/make_encoders.py).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "temporary_folder.h"
#include "tests/model/harness.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kReference = TRIREME_SOURCE "/tests/golden/encoders";
constexpr int64_t kRows = 3, kLength = 20, kVocabSize = 37;

ModelConfig encoder(const std::string& name, const std::string& options) {
  ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "zoo { name: '" + name + "' blocks: 2 width: 32 heads: 4 " + options + " }", &config));
  return config;
}
ModelConfig bert() { return encoder("bert-mini", "padding_token: 0 segment_end: 3"); }
ModelConfig vit() { return encoder("vit-tiny", "patch: 4"); }
model::ModelInput labeled() { return model::labeled_tokens(kLength, kVocabSize, 4); }
model::ModelInput masked() { return model::token_input(kLength, kVocabSize); }
model::ModelInput images() { return model::classified({3, 12, 12}, 5); }

class EncoderWeights : public ::testing::Test {
 protected:
  // Expects that the network computes the logits of this name.
  static void expect_logits(const std::string& name, const ModelConfig& config,
                            const model::ModelInput& input) {
    const model::Graph graph = model::build_graph(config, input);
    const InitialValues initial = read_initial_values(read_stored_model(kReference / name), graph);
    const size_t count = initial.weights.size();
    EXPECT_EQ(initial.summary,
              fmt::format("{} of {} tensors from {} (Hugging Face names)", count, count, name));
    expect_logits(name, initial, config, input);
  }
  static void expect_logits(const std::string& name, const InitialValues& initial,
                            const ModelConfig& config, const model::ModelInput& input) {
    model::TestNetwork net(config, input, model::cpu(),
                           {.batch = kRows, .training = false, .output = true});
    for (const model::Parameter& parameter : net.parameters.all) {
      net.set_value(parameter, initial.weights.at(parameter.name).values);
    }
    const SafetensorsReader inputs(kReference / "inputs.safetensors");
    model::TestBatch batch(input, kRows, 1);
    batch.inputs = inputs.read("images");
    const std::vector<float> tokens = inputs.read("tokens");
    if (input.input.dtype == DType::kI32) batch.set_tokens({tokens.begin(), tokens.end()});
    net.run(batch);
    const std::vector<float> logits = net.output();
    const auto wanted = SafetensorsReader(kReference / "logits.safetensors").read(name);
    ASSERT_EQ(logits.size(), wanted.size());
    float largest = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (is_padding(tokens, input, i)) continue;
      ASSERT_FALSE(std::isnan(logits[i]));
      largest = std::max(largest, std::abs(logits[i] - wanted[i]));
    }
    EXPECT_LT(largest, 1e-4F);
  }
  // The logits of padding mean nothing: attention gives 0 there, but that of transformers does not.
  static bool is_padding(const std::vector<float>& tokens, const model::ModelInput& input,
                         size_t logit) {
    if (input.target.shape.rank() == 0) return false;
    return tokens[logit / kVocabSize] == 0;
  }

  InitialValues read(const model::Weights& weights, const ModelConfig& config,
                     const model::ModelInput& input) const {
    const fs::path path = folder_.path() / "model.safetensors";
    std::vector<SafetensorsEntry> entries;
    std::string bytes;
    for (const auto& [name, weight] : weights) {
      entries.push_back({name, weight.shape});
      bytes.append(reinterpret_cast<const char*>(weight.values.data()),
                   weight.values.size() * sizeof(float));
    }
    spill(path, safetensors_header(entries) + bytes);
    return read_initial_values(read_stored_model(path), model::build_graph(config, input));
  }
  std::string error_of(const model::Weights& weights, const ModelConfig& config,
                       const model::ModelInput& input) const {
    try {
      read(weights, config, input);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder folder_;
  const model::Weights bert_ = read_weights(kReference / "bert");
  const model::Weights mlm_ = read_weights(kReference / "bert-mlm");
  const model::Weights vit_ = read_weights(kReference / "vit");
};

TEST_F(EncoderWeights, BertClassifiesAsTransformers) { expect_logits("bert", bert(), labeled()); }
TEST_F(EncoderWeights, BertPredictsWordsAsTransformers) {
  expect_logits("bert-mlm", bert(), masked());
}
TEST_F(EncoderWeights, VitClassifiesAsTransformers) { expect_logits("vit", vit(), images()); }

TEST_F(EncoderWeights, JoinsQueriesKeysAndValues) {
  const InitialValues initial = read(bert_, bert(), labeled());
  const model::Weight& joined = initial.weights.at("encoder.layer.1.attention.self.qkv.weight");
  ASSERT_EQ(joined.shape, (Shape{96, 32}));
  const std::string self = "bert.encoder.layer.1.attention.self.";
  for (const auto& [first, part] : {std::pair{0, "query"}, {1024, "key"}, {2048, "value"}}) {
    const std::vector<float>& wanted = bert_.at(self + part + ".weight").values;
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), joined.values.begin() + first)) << part;
  }
}

TEST_F(EncoderWeights, PretrainedBertGetsNewHeads) {
  const InitialValues classifier = read(mlm_, bert(), labeled());
  EXPECT_THAT(classifier.summary, HasSubstr("; classifier is not in the file and is newly "
                                            "initialized"));
  EXPECT_THAT(classifier.summary, HasSubstr("; pooler.* is not in the file and is newly "
                                            "initialized"));
  EXPECT_THAT(classifier.summary, HasSubstr("; cls.* of the file is not used"));
  EXPECT_FALSE(classifier.weights.contains("pooler.dense.weight"));
  EXPECT_TRUE(classifier.weights.contains("embeddings.segment"));
}

TEST_F(EncoderWeights, ReadsNamesOfTheFirstCheckpoints) {
  model::Weights old;
  for (const auto& [name, weight] : bert_) {
    std::string renamed = name;
    const size_t at = renamed.find("LayerNorm.");
    if (at != std::string::npos) {
      renamed.replace(at + 10, std::string::npos, renamed.ends_with("bias") ? "beta" : "gamma");
    }
    old[renamed] = weight;
  }
  EXPECT_EQ(read(old, bert(), labeled()).weights.at("embeddings.LayerNorm.bias").values,
            bert_.at("bert.embeddings.LayerNorm.bias").values);
}

TEST_F(EncoderWeights, RejectsFilesThatDoNotFit) {
  model::Weights weights = bert_;
  weights.erase("bert.encoder.layer.0.attention.self.key.bias");
  const std::string incomplete = error_of(weights, bert(), labeled());
  EXPECT_THAT(incomplete, HasSubstr("'encoder.layer.0.attention.self.qkv.bias' is missing"));
  EXPECT_THAT(incomplete, HasSubstr("'bert.encoder.layer.0.attention.self.query.bias' is not in "
                                    "the network"));
  weights = vit_;
  model::Weight& positions = weights.at("vit.embeddings.position_embeddings");
  positions.shape[1] += 1;
  positions.values.resize(positions.values.size() + 32);
  EXPECT_THAT(
      error_of(weights, vit(), images()),
      HasSubstr("'vit.embeddings.position_embeddings' is [1, 11, 32], but the network needs "
                "[10, 32]"));
  EXPECT_THAT(error_of(vit_, bert(), labeled()), HasSubstr("is missing"));
}

// A fine-tuned BERT is loaded by transformers only with all positions of its config.json.
TEST_F(EncoderWeights, KeepsThePositionsThatNoSampleHas) {
  model::ModelInput shorter = labeled();
  shorter.input.shape = {12};
  Config config;
  *config.run.mutable_model() = bert();
  const StoredModel stored = read_stored_model(kReference / "bert");
  model::Graph graph = model::build_graph(config.run.model(), shorter);
  EXPECT_EQ(stored_positions(stored, graph), kLength);
  EXPECT_FALSE(keep_positions(config, graph, 12));
  EXPECT_TRUE(keep_positions(config, graph, kLength));
  EXPECT_EQ(config.run.model().zoo().max_length(), kLength);
  graph = model::build_graph(config.run.model(), shorter);
  EXPECT_FALSE(keep_positions(config, graph, kLength + 1));  // it is set
  const InitialValues initial = read_initial_values(stored, graph);
  EXPECT_EQ(initial.weights.at("embeddings.position").values,
            bert_.at("bert.embeddings.position_embeddings.weight").values);
  // The positions of a vision transformer belong to the sizes of image and patches.
  EXPECT_FALSE(has_learned_positions(model::build_graph(vit(), images())));
}

TEST_F(EncoderWeights, UsesTheFirstPositionsOfMore) {
  const ModelConfig longer = encoder("bert-mini", "padding_token: 0 segment_end: 3 max_length: 40");
  model::Weights weights = bert_;
  model::Weight& positions = weights.at("bert.embeddings.position_embeddings.weight");
  positions.shape = {40, 32};
  positions.values.resize(40 * 32, 1e3F);
  expect_logits("bert", read(weights, longer, labeled()), longer, labeled());
  const InitialValues initial = read(bert_, bert(), [] {
    model::ModelInput shorter = labeled();
    shorter.input.shape = {12};
    return shorter;
  }());
  EXPECT_THAT(initial.summary, HasSubstr("; the first 12 of 20 positions"));
}

}  // namespace
}  // namespace trireme::train
