// Whole networks as ONNX models compute the same as before.
#include <cstring>
#include <iterator>

#include "model/onnx/onnx.h"
#include "model/onnx/onnx.pb.h"
#include "tests/model/onnx_files.h"
#include "tests/model/sequence_networks.h"

namespace trireme::model {
namespace {

namespace fs = std::filesystem;
using onnx::TensorProto;

std::vector<float> floats_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Models exported by PyTorch (tests/golden/make_onnx.py).
class GoldenOnnx : public testing::TestWithParam<const char*> {};

TEST_P(GoldenOnnx, ComputesTheLogitsOfPyTorch) {
  const fs::path folder = fs::path(TRIREME_SOURCE) / "tests/golden/onnx";
  const OnnxModel model = read_onnx(folder / GetParam());
  const ModelInput input = classified(model.input, model.outputs);
  TestBatch batch(input, 2, 0);
  batch.inputs = floats_of(folder / "inputs.f32");
  const std::vector<float> wanted = floats_of(folder / "logits.f32");
  ASSERT_EQ(wanted.size(), static_cast<size_t>(2 * model.outputs));
  ASSERT_EQ(batch.inputs.size(), static_cast<size_t>(2 * model.input.elements()));

  TestNetwork net(config_of(model.network), input, cpu(),
                  {.batch = 2, .training = false, .output = true});
  for (const Parameter& parameter : net.parameters.all) {
    net.set_value(parameter, model.weights.at(parameter.name).values);
  }
  for (const RunningStatistic& value : net.parameters.running_stats) {
    net.set_running_stat(value, model.weights.at(value.name).values);
  }
  net.run(batch);
  EXPECT_LT(relative_error(net.output(), wanted), 1e-5);
  EXPECT_TRUE(model.weights.contains("layer1.0.conv1.weight"));
}

INSTANTIATE_TEST_SUITE_P(Exporters, GoldenOnnx, testing::Values("script.onnx", "dynamo.onnx"),
                         [](const auto& file) {
                           const std::string name = file.param;
                           return name.substr(0, name.find('.'));
                         });

// The logits of an imported network with these values.
std::vector<float> logits_of(const ModelConfig& config, const SequenceNetwork& network,
                             const Weights& weights, const TestBatch& batch) {
  TestNetwork net(config, network.input, reference(),
                  {.batch = kSequenceRows, .training = false, .output = true});
  for (const Parameter& parameter : net.parameters.all) {
    const auto found = weights.find(parameter.name);
    if (found == weights.end()) throw Error("no values for " + parameter.name);
    EXPECT_EQ(found->second.shape, parameter.spec.shape) << parameter.name;
    net.set_value(parameter, found->second.values);
  }
  net.run(batch);
  return net.output();
}

TEST(OnnxNetworks, NetworksForSequencesGiveTheSameLogits) {
  for (const SequenceNetwork& network : sequence_networks()) {
    SCOPED_TRACE(network.name);
    TestNetwork net(network.config, network.input, reference(),
                    {.batch = kSequenceRows, .training = false, .output = true});
    const Weights weights = set_random_values(net);
    TestBatch batch(network.input, kSequenceRows, 5);
    if (network.input.input.dtype == DType::kI32) batch.set_tokens(padded_tokens(network.input));
    const std::vector<float> wanted = logits_of(network.config, network, weights, batch);

    const OnnxModel found =
        read_onnx(file_of(to_onnx(network.config, network.input, weights), network.name));
    const std::vector<float> logits =
        logits_of(config_of(found.network), network, found.weights, batch);
    ASSERT_EQ(logits.size(), wanted.size());
    for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-5) << i;
    EXPECT_EQ(found.outputs, network.input.classes);
  }
}

// Kinds, options and ties are those of the exported network, not only its results.
TEST(OnnxNetworks, LayersOfSequencesAreRecognized) {
  const auto imported = [](const std::string& name) {
    for (const SequenceNetwork& network : sequence_networks()) {
      if (network.name != name) continue;
      TestNetwork net(network.config, network.input, reference(),
                      {.batch = kSequenceRows, .training = false, .output = true});
      return read_onnx(
          file_of(to_onnx(network.config, network.input, set_random_values(net)), name));
    }
    throw Error("no network " + name);
  };
  const OnnxModel grouped = imported("grouped");
  EXPECT_EQ(kinds_of(grouped),
            (Kinds{"embedding", "rms_norm", "dense", "attention", "dense", "add", "dense", "swiglu",
                   "dense", "gelu_tanh", "dense", "softmax_cross_entropy"}));
  const AttentionConfig& attention = grouped.network.layer(3).attention();
  EXPECT_EQ(attention.heads(), 6);
  EXPECT_EQ(attention.kv_heads(), 3);
  EXPECT_TRUE(attention.causal());
  EXPECT_EQ(attention.padding_token(), 1);
  EXPECT_EQ(attention.document_end(), 2);
  EXPECT_EQ(attention.rotary().base(), 50);
  EXPECT_FLOAT_EQ(grouped.network.layer(1).rms_norm().epsilon(), 0.001F);
  EXPECT_EQ(grouped.network.layer(10).dense().tied_to(), "e");
  EXPECT_EQ(grouped.input, Shape{12});  // that of the positions

  const OnnxModel recurrent = imported("lstm_both");
  EXPECT_EQ(kinds_of(recurrent), (Kinds{"embedding", "lstm", "dense", "softmax_cross_entropy"}));
  const RecurrentConfig& lstm = recurrent.network.layer(1).lstm();
  EXPECT_EQ(lstm.hidden(), 7);
  EXPECT_EQ(lstm.layers(), 2);
  EXPECT_TRUE(lstm.bidirectional());
  EXPECT_EQ(recurrent.input, Shape{0});
  EXPECT_TRUE(recurrent.weights.contains("r.weight_hh_l1_reverse"));
}

// Attention with another scale is no attention of ours, so its operators are listed.
TEST(OnnxNetworks, OtherAttentionIsNotSupported) {
  for (const SequenceNetwork& network : sequence_networks()) {
    if (network.name != "gpt") continue;
    TestNetwork net(network.config, network.input, reference(),
                    {.batch = kSequenceRows, .training = false, .output = true});
    onnx::ModelProto proto;
    proto.ParseFromString(to_onnx(network.config, network.input, set_random_values(net)));
    for (TensorProto& tensor : *proto.mutable_graph()->mutable_initializer()) {
      if (!tensor.name().ends_with("attn/scale")) continue;
      const float scale = 0.1F;
      tensor.set_raw_data(&scale, sizeof scale);
    }
    expect_words(error_message<ConfigError>([&] { read_onnx(file_of(proto.SerializeAsString())); }),
                 {"cannot be imported", "Split", "h.0.attn/qkv"});
  }
}

}  // namespace
}  // namespace trireme::model
