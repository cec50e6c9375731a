// ResNet-18 with weights of another framework computes the logits of PyTorch. The weights are a
// function of name and index (tests/golden/make_logits.py).
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "model/names.h"
#include "temporary_folder.h"
#include "tests/model/harness.h"
#include "trainer/checkpoint/init_from.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

constexpr int64_t kRows = 2;
constexpr std::array<float, 20> kLogits = {
    49.87324f,  -78.74206f, 61.39257f, 165.292f,   53.41193f,   // the first image
    -9.524533f, -105.6278f, 100.0644f, 3.159205f,  -6.938575f,  //
    46.18596f,  -86.85888f, 72.46216f, 165.9611f,  38.31197f,   // the second
    -30.877f,   -99.40085f, 96.61258f, -2.189353f, -4.491848f};

// Numbers in [0, 1).
std::vector<double> uniform(const std::string& name, int64_t count) {
  uint32_t state = 2166136261;
  for (const char byte : name) state = (state ^ static_cast<unsigned char>(byte)) * 16777619;
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761 + state;
    x = (x ^ x >> 16) * 0x7FEB352D;
    x = (x ^ x >> 15) * 0x846CA68B;
    numbers.push_back(std::ldexp(x ^ x >> 16, -32));
  }
  return numbers;
}

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

// Writes all tensors of the network, with names of this style.
void write_weights(const std::filesystem::path& path, const model::Graph& graph,
                   model::NameStyle style) {
  std::vector<SafetensorsEntry> entries;
  std::string bytes;
  const auto add = [&](const std::string& name, const Shape& shape) {
    entries.push_back({*model::name_in(style, name), shape});
    const std::vector<float> values = values_of(name, shape);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  };
  for (const model::Node& node : graph.nodes) {
    for (const auto& p : node.signature.parameters) add(node.name + "." + p.name, p.shape);
    for (const auto& v : node.signature.running_stats) add(node.name + "." + v.name, v.shape);
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
  write_weights(path, net.graph(), GetParam());
  const InitialValues initial = read_initial_values(path, net.graph());
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

}  // namespace
}  // namespace trireme::train
