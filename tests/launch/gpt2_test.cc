// GPT-2 with weights that transformers has saved computes the logits of transformers and generates
// the same tokens (tests/golden/make_gpt2.py).
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
#include "trainer/config/run_folder.h"
#include "trainer/infer/predictor.h"
#include "trainer/report/sample_info.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kPromptTokens = 16;

fs::path reference() {
  if (const char* folder = std::getenv("TRIREME_GPT2")) return folder;
  return TRIREME_SOURCE "/tests/golden/gpt2";
}

// Returns the sequences of tokens, each a prompt and its continuation.
std::vector<std::vector<int32_t>> read_sequences() {
  std::vector<std::vector<int32_t>> sequences;
  std::istringstream lines(read_file(reference() / "tokens.txt"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    sequences.emplace_back(std::istream_iterator<int32_t>(words), std::istream_iterator<int32_t>());
  }
  return sequences;
}

// Saves the network as a run once for all tests, without training it.
class Gpt2Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new Scratch;
    const Json network = Json::parse(read_file(reference() / "config.json"));
    const auto size = [&](const char* name) { return network[name].get<int64_t>(); };
    const std::string tokens(static_cast<size_t>(size("n_positions") + 1) * sizeof(uint16_t), 0);
    const auto file = scratch_->write("tokens.bin", tokens);
    const auto config =
        scratch_->write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ name: "gpt2-124m" blocks: {} width: {} heads: {} }} init_from: "{}" }}
      data {{ tokens {{ train: "{}" eval: "{}" length: {} vocab_size: {} }} }}
      batch {{ global: 1 }} train {{ max_steps: 0 device: "cpu" }}
      optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
    )",
                                                 size("n_layer"), size("n_embd"), size("n_head"),
                                                 reference().string(), file, file,
                                                 size("n_positions"), size("vocab_size")));
    trained_ = run({"train", config, "--run-dir", folder()});
  }
  static void TearDownTestSuite() { delete scratch_; }
  void SetUp() override { ASSERT_EQ(trained_.code, 0) << trained_.error; }

  static std::string folder() { return (*scratch_ / "run").string(); }

  static Scratch* scratch_;
  static Outcome trained_;
};
Scratch* Gpt2Test::scratch_ = nullptr;
Outcome Gpt2Test::trained_;

TEST_F(Gpt2Test, ComputesTheLogitsOfTransformers) {
  const auto sequences = read_sequences();
  const auto rows = std::ssize(sequences);
  const train::Config config = train::load_config(train::find_run(folder()).config().string(), {});
  const train::SampleInfo info = train::read_sample_info(folder(), config);
  const auto alone = comm::create_local_communicator();
  const auto device = train::create_device(config, *alone);
  const auto backend = train::create_backend(config, *device);
  const train::TrainedModel model(config, *backend, info.spec, folder(), rows,
                                  train::BatchNormMode::kFolded, train::warn_on_stderr);
  train::Predictor predictor(model, *backend, rows);

  const auto length = static_cast<size_t>(info.spec.input.shape[0]);
  std::vector<int32_t> inputs;
  for (size_t row = 0; row < sequences.size(); ++row) {
    inputs.insert(inputs.end(), sequences[row].begin(), sequences[row].end());
    inputs.resize((row + 1) * length);
  }
  const auto logits = predictor.run(std::as_bytes(std::span(inputs)).data(), rows);
  const std::vector<float> wanted =
      train::SafetensorsReader(reference() / "logits.safetensors").read("logits");
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

TEST_F(Gpt2Test, GeneratesTheTokensOfTransformers) {
  const auto sequences = read_sequences();
  const size_t generated = sequences[0].size() - kPromptTokens;
  std::string prompts;
  for (const auto& sequence : sequences) {
    for (size_t i = 0; i < kPromptTokens; ++i) prompts += fmt::format("{} ", sequence[i]);
    prompts += "\n";
  }
  const Outcome outcome =
      run({"generate", folder(), "--prompts", scratch_->write("prompts", prompts), "--max-tokens",
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

}  // namespace
}  // namespace trireme::testing
