// Encoders train as those of transformers from the same weights on the same samples, and files that
// transformers has saved are exported as they were (tests/golden/make_encoder_losses.py,
// make_encoders.py).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/golden/formula.h"
#include "tests/launch/program.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"
#include "trainer/config/inputs.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using golden::uniform;

constexpr int64_t kSteps = 20, kBatch = 8;
const fs::path kGolden = TRIREME_SOURCE "/tests/golden";

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Writes all parameters of the configured network, which are functions of their names.
void write_weights(const std::string& config, const fs::path& path) {
  const train::Config parsed = train::load_config(config, {});
  const auto dataset = train::open_data(parsed, data::Part::kTraining);
  std::vector<train::SafetensorsEntry> entries;
  std::vector<float> values;
  for (const model::Node& node : train::build_network(parsed, dataset->spec()).nodes) {
    for (const auto& parameter : node.signature.parameters) {
      if (!parameter.tied_to.empty()) continue;
      const std::string name = parameter_name(node, parameter);
      const bool is_norm =
          name.find("norm") != std::string::npos || name.find("LayerNorm") != std::string::npos;
      const bool around_one = is_norm && name.ends_with("weight");
      entries.push_back({name, parameter.shape});
      for (const double u : uniform(name, parameter.shape.elements())) {
        values.push_back(static_cast<float>(around_one ? 1 + 0.2 * (u - 0.5) : 0.1 * (u - 0.5)));
      }
    }
  }
  std::ofstream(path, std::ios::binary) << train::safetensors_header(entries) << bytes_of(values);
}

class EncoderTest : public ::testing::Test {
 protected:
  // Trains the network and expects the losses of PyTorch.
  void expect_losses(const std::string& name, const std::string& model, const std::string& data) {
    const fs::path weights = scratch_ / "weights.safetensors";
    const auto config =
        scratch_.write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ {} }} init_from: "{}" }}
      data {{ {} shuffle: false }}
      seed: 1
      batch {{ global: {} }}
      train {{ max_steps: {} device: "cpu" clip_norm: 1 }}
      optimizer {{ adamw {{}} weight_decay: 0.05 }}
      schedule {{ learning_rate: 0.001 constant {{}} }}
    )",
                                                model, weights.string(), data, kBatch, kSteps));
    write_weights(config, weights);
    const Outcome outcome = run({"train", config, "--run-dir", (scratch_ / "run").string()});
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    const auto wanted = nlohmann::json::parse(read_file(kGolden / "encoder_losses.json"))[name];
    const std::vector<std::string> losses = losses_of(scratch_ / "run");
    ASSERT_EQ(losses.size(), wanted.size());
    double largest = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto expected = wanted[i].get<double>();
      const double difference = std::abs(std::stod(losses[i]) - expected) / expected;
      EXPECT_LT(difference, 1e-4) << "step " << i + 1 << ": " << losses[i] << " " << expected;
      largest = std::max(largest, difference);
    }
    RecordProperty("largest_difference", fmt::format("{:.1e}", largest));
  }

  // Expects that a run that starts from the file of transformers is exported as the same file.
  void expect_round_trip(const std::string& name, const std::string& model,
                         const std::string& data) {
    const fs::path file = kGolden / "encoders" / name / "model.safetensors";
    const auto config = scratch_.write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ {} blocks: 2 width: 32 heads: 4 }} init_from: "{}" }}
      data {{ {} }}
      batch {{ global: 1 }} train {{ max_steps: 0 device: "cpu" }}
      optimizer {{ sgd {{}} }} schedule {{ learning_rate: 0.1 }}
    )",
                                                                model, file.string(), data));
    const std::string folder = (scratch_ / "run").string();
    const Outcome trained = run({"train", config, "--run-dir", folder});
    ASSERT_EQ(trained.code, 0) << trained.error;
    const std::string written = (scratch_ / "written.safetensors").string();
    const Outcome exported = run({"export", folder, written, "--names", "huggingface"});
    ASSERT_EQ(exported.code, 0) << exported.error;
    const train::SafetensorsReader wanted(file), found(written);
    EXPECT_THAT(found.names(), ::testing::UnorderedElementsAreArray(wanted.names()));
    for (const std::string& tensor : wanted.names()) {
      EXPECT_EQ(found.shape(tensor), wanted.shape(tensor)) << tensor;
      EXPECT_EQ(found.read(tensor), wanted.read(tensor)) << tensor;
    }
  }

  Scratch scratch_;
};

TEST_F(EncoderTest, BertHasTheLossesOfTransformers) {
  constexpr int64_t kLength = 32;
  const std::vector<double> noise = uniform("tokens", kSteps * kBatch * kLength);
  std::vector<uint16_t> tokens(noise.size());
  for (int64_t row = 0; row < kSteps * kBatch; ++row) {
    for (int64_t t = 0; t < kLength - row % 5 * 4; ++t) {
      const size_t i = static_cast<size_t>(row * kLength + t);
      const bool follows = t > 1 && noise[i] > 0.2;
      tokens[i] = static_cast<uint16_t>(follows ? (tokens[i - 1] + tokens[i - 2]) % 40 + 2
                                                : static_cast<int>(noise[i] * 90) + 2);
    }
  }
  tokens.push_back(0);  // windows have a target for their last token
  const auto file = scratch_.write("tokens.bin", bytes_of(tokens));
  expect_losses("bert-mini", "name: 'bert-mini' padding_token: 0",
                fmt::format("tokens {{ train: '{0}' eval: '{0}' length: {1} vocab_size: 96 }} "
                            "mask {{ token: 95 keep: 0 }}",
                            file, kLength));
}

// Returns the file of an array [N, ...] of bytes, or of i32 [N].
template <class T>
std::string npy(const std::string& dtype, const std::string& shape, const std::vector<T>& values) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", dtype, shape);
  header.resize((header.size() + 1 + 10 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto size = static_cast<uint16_t>(header.size());
  return std::string("\x93NUMPY\x01\x00", 8) + bytes_of(std::vector<uint16_t>{size}) + header +
         bytes_of(values);
}

TEST_F(EncoderTest, VitHasTheLossesOfTransformers) {
  constexpr int64_t kCount = kSteps * kBatch, kSide = 32, kPixels = kSide * kSide * 3;
  const std::vector<double> noise = uniform("images", kCount * kPixels);
  std::vector<uint8_t> images(noise.size());
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < kCount; ++i) labels.push_back(static_cast<int32_t>(i * 7 % 10));
  for (size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<uint8_t>(noise[i] * 100 + labels[i / kPixels] * 15);
  }
  const auto inputs = scratch_.write(
      "inputs.npy", npy("|u1", fmt::format("{}, {}, {}, 3", kCount, kSide, kSide), images));
  const auto targets =
      scratch_.write("targets.npy", npy("<i4", fmt::format("{},", kCount), labels));
  expect_losses(
      "vit-tiny", "name: 'vit-tiny' patch: 8",
      fmt::format("npy {{ train_inputs: '{0}' train_targets: '{1}' eval_inputs: '{0}' "
                  "eval_targets: '{1}' classes: 10 }} normalize {{ mean: 0.5 std: 0.25 }}",
                  inputs, targets));
}

TEST_F(EncoderTest, BertIsExportedAsTransformersSavesIt) {
  const std::vector<uint16_t> tokens(21, 5);
  const auto file = scratch_.write("tokens.bin", bytes_of(tokens));
  expect_round_trip("bert-mlm", "name: 'bert-mini' padding_token: 0",
                    fmt::format("tokens {{ train: '{0}' eval: '{0}' length: 20 vocab_size: 37 }} "
                                "mask {{ token: 4 }}",
                                file));
  const std::string folder = (scratch_ / "run").string();
  const Outcome predicted = run({"predict", folder, file});
  EXPECT_EQ(predicted.code, 2);
  EXPECT_THAT(predicted.error, ::testing::HasSubstr("predicts masked tokens"));
  const Outcome generated = run({"generate", folder, "--prompt", "5 6"});
  EXPECT_EQ(generated.code, 2);
  EXPECT_THAT(generated.error, ::testing::HasSubstr("attention reads later tokens"));
}

// Fine-tuning with samples of 12 tokens trains 12 of the 20 positions and exports all.
TEST_F(EncoderTest, FineTunedBertKeepsAllPositions) {
  const std::vector<uint16_t> tokens(40 * 12 + 1, 5);
  const auto data = scratch_.write("tokens.bin", bytes_of(tokens));
  const fs::path file = scratch_ / "bert.safetensors";
  fs::copy_file(kGolden / "encoders/bert-mlm/model.safetensors", file);
  const auto config = scratch_.write("run.txtpb", fmt::format(R"(
      model {{ zoo {{ name: 'bert-mini' blocks: 2 width: 32 heads: 4 }} init_from: "{0}" }}
      data {{ tokens {{ train: '{1}' eval: '{1}' length: 12 vocab_size: 37 }} mask {{ token: 4 }} }}
      batch {{ global: 8 }} train {{ max_steps: 2 device: "cpu" }}
      optimizer {{ adamw {{}} weight_decay: 0 }} schedule {{ learning_rate: 0.01 }}
    )",
                                                              file.string(), data));
  const std::string folder = (scratch_ / "run").string();
  const Outcome checked = run({"config", "check", config, "--set", "run_dir=" + folder});
  EXPECT_EQ(checked.code, 0) << checked.error;
  EXPECT_THAT(checked.out, ::testing::Not(::testing::HasSubstr("the first 12")));
  ASSERT_EQ(run({"train", config, "--run-dir", folder}, 2).code, 0);
  const train::SafetensorsReader wanted(file);
  const std::string name = "bert.embeddings.position_embeddings.weight";
  const std::vector<float> before = wanted.read(name);
  const auto expect_all = [&] {
    const std::string written = (scratch_ / "written.safetensors").string();
    const Outcome exported = run({"export", folder, written, "--names", "huggingface"});
    ASSERT_EQ(exported.code, 0) << exported.error;
    const train::SafetensorsReader found(written);
    ASSERT_EQ(found.shape(name), wanted.shape(name));
    const std::vector<float> after = found.read(name);
    EXPECT_NE(std::vector(after.begin(), after.begin() + 32),
              std::vector(before.begin(), before.begin() + 32));
    EXPECT_TRUE(std::equal(after.begin() + 12 * 32, after.end(), before.begin() + 12 * 32));
  };
  expect_all();
  fs::remove(file);  // not needed to resume
  const Outcome resumed = run({"train", config, "--run-dir", folder, "--set", "train.max_steps=4"});
  ASSERT_EQ(resumed.code, 0) << resumed.error;
  expect_all();
  const Outcome onnx = run({"export", folder, (scratch_ / "bert.onnx").string()});
  EXPECT_EQ(onnx.code, 0) << onnx.error;
  EXPECT_EQ(run({"eval", folder}).code, 0);
}

TEST_F(EncoderTest, VitIsExportedAsTransformersSavesIt) {
  expect_round_trip("vit", "name: 'vit-tiny' patch: 4",
                    "synthetic { shape: [3, 12, 12] classes: 5 count: 4 eval_count: 2 }");
}

}  // namespace
}  // namespace trireme::testing
