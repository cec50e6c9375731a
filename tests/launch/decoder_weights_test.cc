// GPT-2 and Llama with weights that transformers has saved compute the logits of transformers and
// generate the same tokens (tests/golden/make_decoders.py).
#include <fmt/args.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/program.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/device.h"
#include "trainer/infer/predictor.h"
#include "trainer/infer/trained_model.h"
#include "trainer/report/sample_info.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kPromptTokens = 16;

// A network of transformers. The pointers (RFC 6901) are to values of its config.json.
struct Decoder {
  const char* name;
  const char* zoo;  // an fmt format of the size
  const char* positions;
  std::vector<const char*> size;
};
const Decoder kGpt2{"gpt2",
                    R"(name: "gpt2-124m" blocks: {} width: {} heads: {})",
                    "/n_positions",
                    {"/n_layer", "/n_embd", "/n_head"}};
const Decoder kLlama{"llama",
                     R"(name: "llama-mini" blocks: {} width: {} heads: {} kv_heads: {}
                        mlp_width: {} rotary_base: {})",
                     "/max_position_embeddings",
                     {"/num_hidden_layers", "/hidden_size", "/num_attention_heads",
                      "/num_key_value_heads", "/intermediate_size", "/rope_parameters/rope_theta"}};

fs::path reference(const Decoder& decoder) {
  const char* folder = std::getenv("TRIREME_GPT2");
  if (folder && &decoder == &kGpt2) return folder;
  return fs::path(TRIREME_SOURCE "/tests/golden") / decoder.name;
}

// Returns the sequences of tokens, each a prompt and its continuation.
std::vector<std::vector<int32_t>> read_sequences(const Decoder& decoder) {
  std::vector<std::vector<int32_t>> sequences;
  std::istringstream lines(read_file(reference(decoder) / "tokens.txt"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    sequences.emplace_back(std::istream_iterator<int32_t>(words), std::istream_iterator<int32_t>());
  }
  return sequences;
}

class DecoderWeights : public ::testing::TestWithParam<const Decoder*> {
 protected:
  void SetUp() override {
    const Outcome outcome = initialize_from(reference(decoder()).string());
    ASSERT_EQ(outcome.code, 0) << outcome.error;
  }

  // Saves the network as a run, without training it.
  Outcome initialize_from(const std::string& weights) const {
    const Json network = Json::parse(read_file(reference(decoder()) / "config.json"));
    fmt::dynamic_format_arg_store<fmt::format_context> sizes;
    const auto value = [&](const char* at) {
      return network.at(Json::json_pointer(at)).get<int64_t>();
    };
    for (const char* at : decoder().size) sizes.push_back(value(at));
    const int64_t positions = value(decoder().positions);
    const std::string tokens(static_cast<size_t>(positions + 1) * sizeof(uint16_t), 0);
    const auto file = scratch_.write("tokens.bin", tokens);
    const auto config = scratch_.write(
        "run.txtpb", fmt::format(R"(
      model {{ zoo {{ {} }} init_from: "{}" }}
      data {{ tokens {{ train: "{}" eval: "{}" length: {} vocab_size: {} }} }}
      batch {{ global: 1 }} train {{ max_steps: 0 device: "cpu" }}
      optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
    )",
                                 fmt::vformat(decoder().zoo, sizes), weights, file, file, positions,
                                 network["vocab_size"].get<int64_t>()));
    std::filesystem::remove_all(folder());
    return run({"train", config, "--run-dir", folder()});
  }

  static const Decoder& decoder() { return *GetParam(); }
  std::string folder() const { return (scratch_ / "run").string(); }

  const Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(Decoders, DecoderWeights, ::testing::Values(&kGpt2, &kLlama),
                         [](const auto& test) { return test.param->name; });

TEST_P(DecoderWeights, ComputesTheLogitsOfTransformers) {
  const auto sequences = read_sequences(decoder());
  const auto rows = std::ssize(sequences);
  const train::TrainedRun run = train::find_trained_run(folder(), {}, train::warn_on_stderr);
  const train::Config& config = run.config;
  const train::SampleInfo info = train::samples_of(run);
  const auto alone = comm::create_local_communicator();
  const auto device = train::create_device(config, *alone);
  const auto backend = train::create_backend(config, *device);
  const train::TrainedModel model(config, *backend, info.spec, run.checkpoint, rows,
                                  train::BatchNormMode::kFolded);
  train::Predictor predictor(model, *backend, rows);

  const auto length = static_cast<size_t>(info.spec.input.shape[0]);
  std::vector<int32_t> inputs;
  for (size_t row = 0; row < sequences.size(); ++row) {
    inputs.insert(inputs.end(), sequences[row].begin(), sequences[row].end());
    inputs.resize((row + 1) * length);
  }
  const auto logits = predictor.run(std::as_bytes(std::span(inputs)).data(), rows);
  const std::vector<float> wanted =
      train::SafetensorsReader(reference(decoder()) / "logits.safetensors").read("logits");
  const auto vocab_size = static_cast<size_t>(info.spec.classes);
  const size_t compared = sequences[0].size() * vocab_size;
  ASSERT_EQ(wanted.size(), sequences.size() * compared);
  float largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t row = i / compared;
    const float difference = logits[row * length * vocab_size + i % compared] - wanted[i];
    ASSERT_FALSE(std::isnan(difference));
    largest = std::max(largest, std::abs(difference));
  }
  EXPECT_LT(largest, 1e-4F);
  RecordProperty("largest_difference", fmt::format("{:.1e}", largest));
}

TEST_P(DecoderWeights, GeneratesTheTokensOfTransformers) {
  const auto sequences = read_sequences(decoder());
  const size_t generated = sequences[0].size() - kPromptTokens;
  std::string prompts;
  for (const auto& sequence : sequences) {
    for (size_t i = 0; i < kPromptTokens; ++i) prompts += fmt::format("{} ", sequence[i]);
    prompts += "\n";
  }
  const Outcome outcome =
      run({"generate", folder(), "--prompts", scratch_.write("prompts", prompts), "--max-tokens",
           std::to_string(generated), "--temperature", "0", "--format", "jsonl"});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  std::istringstream lines(outcome.out);
  for (const auto& sequence : sequences) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const std::vector<int32_t> wanted(sequence.begin() + kPromptTokens, sequence.end());
    EXPECT_EQ(Json::parse(line)["tokens"].get<std::vector<int32_t>>(), wanted);
  }
}

class LlamaWeights : public DecoderWeights {
 protected:
  // Returns the tensors that a run exports for transformers.
  train::SafetensorsReader exported() const {
    const std::string file = (scratch_ / "exported.safetensors").string();
    const Outcome outcome = run({"export", folder(), file, "--names", "huggingface"});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    return train::SafetensorsReader(file);
  }
};
INSTANTIATE_TEST_SUITE_P(Decoders, LlamaWeights, ::testing::Values(&kLlama),
                         [](const auto& test) { return test.param->name; });

TEST_P(LlamaWeights, AreExportedAsTransformersSavesThem) {
  const train::SafetensorsReader ours = exported();
  const train::SafetensorsReader theirs(reference(kLlama) / "model.safetensors");
  EXPECT_THAT(ours.names(), ::testing::UnorderedElementsAreArray(theirs.names()));
  for (const std::string& name : theirs.names()) {
    EXPECT_EQ(ours.shape(name), theirs.shape(name)) << name;
    EXPECT_EQ(ours.read(name), theirs.read(name)) << name;
  }
}

// transformers does not save a last layer that has the weights of the embedding.
TEST_P(LlamaWeights, MayLackATiedLastLayer) {
  const train::SafetensorsReader whole(reference(kLlama) / "model.safetensors");
  std::vector<train::SafetensorsEntry> entries;
  std::string bytes;
  for (const std::string& name : whole.names()) {
    if (name == "lm_head.weight") continue;
    entries.push_back({name, whole.shape(name)});
    const std::vector<float> values = whole.read(name);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  const std::string file =
      scratch_.write("tied.safetensors", train::safetensors_header(entries) + bytes);
  const Outcome outcome = initialize_from(file);
  EXPECT_THAT(outcome.error + outcome.out,
              ::testing::HasSubstr("lm_head begins with the weights of embed_tokens"));
  const train::SafetensorsReader ours = exported();
  EXPECT_EQ(ours.read("lm_head.weight"), whole.read("model.embed_tokens.weight"));
}

}  // namespace
}  // namespace trireme::testing
