// Networks as ONNX models, and back.
#include "model/onnx/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/onnx/onnx.pb.h"
#include "tests/model/onnx_files.h"

namespace trireme::model {
namespace {

const std::string kLoss = "layer { name: 'loss' softmax_cross_entropy {} }";
const ModelInput kImages = classified({3, 16, 12}, 5);

// Distinct values like those of a trained network.
Weights some_weights(const ModelConfig& model, const ModelInput& input) {
  const Random random(11, RandomPurpose::kSynthetic);
  uint64_t index = 0;
  Weights weights;
  const auto add = [&](const std::string& name, const Shape& shape, float shift) {
    Weight& weight = weights[name];
    weight.shape = shape;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      weight.values.push_back(shift + 0.2F * random.normal_at(index++));
    }
  };
  for (const Node& node : declare_graph(network_of(model, input), input).nodes) {
    for (const auto& parameter : node.signature.parameters) {
      if (!parameter.tied_to.empty()) continue;
      add(node.name + "." + parameter.name, parameter.shape, 0);
      if (parameter.frozen)
        std::ranges::fill(weights.at(node.name + "." + parameter.name).values, 1);
    }
    for (const auto& running : node.signature.running_stats) {
      add(node.name + "." + running.name, running.shape, running.initial * 3);
    }
  }
  return weights;
}

// One line for each layer: its name, kind, output shape and inputs. Dropout is omitted, since it is
// not exported.
std::vector<std::string> outline(const NetworkConfig& network, const ModelInput& input) {
  const Graph graph = declare_graph(network, input);
  std::vector<std::string> names{"input"};  // by node + 1
  std::vector<std::string> lines;
  for (const Node& node : graph.nodes) {
    if (node.layer->kind() == "dropout") {
      names.push_back(names[static_cast<size_t>(node.inputs[0]) + 1]);
      continue;
    }
    std::string line =
        fmt::format("{} {} {}", node.name, node.layer->kind(), node.signature.output.to_string());
    for (const int read : node.inputs) line += " " + names[static_cast<size_t>(read) + 1];
    lines.push_back(line);
    names.push_back(node.name);
  }
  return lines;
}

// Exports the network and imports it again; network and values must be the same, and export to the
// same file.
void expect_round_trip(const ModelConfig& model, const ModelInput& input) {
  const Weights weights = some_weights(model, input);
  const std::string bytes = to_onnx(model, input, weights);
  const OnnxModel back = read_onnx(file_of(bytes));
  EXPECT_EQ(outline(back.network, input), outline(network_of(model, input), input));
  EXPECT_EQ(back.input, input.input.shape);
  EXPECT_EQ(back.outputs, input.classes);
  ASSERT_EQ(back.weights.size(), weights.size());
  for (const auto& [name, weight] : weights) {
    const auto found = back.weights.find(name);
    ASSERT_NE(found, back.weights.end()) << name;
    EXPECT_EQ(found->second.shape, weight.shape) << name;
    EXPECT_EQ(found->second.values, weight.values) << name;
  }
  ModelInput again = input;
  again.scale = back.normalization.scale;
  again.mean = back.normalization.mean;
  again.stddev = back.normalization.stddev;
  EXPECT_TRUE(to_onnx(config_of(back.network), again, back.weights) == bytes)
      << "the second file differs from the first";
}

TEST(Onnx, RoundTripsEveryKindOfLayer) {
  expect_round_trip(
      network("layer { name: 'stem' conv2d { channels: 8 kernel: 3 kernel: 2 stride: 2 stride: 1 "
              "padding: 1 padding: 0 dilation: 1 dilation: 2 bias: false } }"
              "layer { name: 'bn' batch_norm { epsilon: 0.003 momentum: 0.25 } }"
              "layer { name: 'gn' group_norm { num_groups: 2 epsilon: 0.003 } }"
              "layer { name: 'plain' group_norm { num_groups: 4 affine: false } }"
              "layer { name: 'instance' group_norm { num_groups: 8 } }"
              "layer { name: 'relu' relu {} }"
              "layer { name: 'groups' conv2d { channels: 8 kernel: 3 padding: 1 groups: 4 } }"
              "layer { name: 'sigmoid' sigmoid {} }"
              "layer { name: 'max' max_pool { kernel: 3 stride: 1 padding: 1 } }"
              "layer { name: 'left' conv2d { channels: 8 kernel: 1 } input: 'relu' }"
              "layer { name: 'tanh' tanh {} }"
              "layer { name: 'sum' add {} input: 'max' input: 'tanh' }"
              "layer { name: 'silu' silu {} }"
              "layer { name: 'drop' dropout { rate: 0.3 } }"
              "layer { name: 'mean' average_pool { kernel: 2 padding: 1 include_padding: false } }"
              "layer { name: 'padded' average_pool { kernel: 3 kernel: 2 stride: 1 padding: 1 } }"
              "layer { name: 'gelu' gelu {} input: 'padded' }"
              "layer { name: 'gelu_tanh' gelu_tanh {} input: 'padded' }"
              "layer { name: 'both' concat {} input: 'gelu' input: 'gelu_tanh' input: 'padded' }"
              "layer { name: 'global' global_pool {} }"
              "layer { name: 'flat' flatten {} }"
              "layer { name: 'hidden' dense { units: 9 bias: false } }"
              "layer { name: 'norm' layer_norm { epsilon: 0.0002 } }"
              "layer { name: 'rows' group_norm { num_groups: 3 } }"
              "layer { name: 'twice' add {} input: 'rows' input: 'rows' }"
              "layer { name: 'head' dense { units: 5 } }" +
              kLoss),
      kImages);
}

TEST(Onnx, RoundTripsScales) {
  expect_round_trip(
      network("layer { name: 'first' scale {} } layer { name: 'shift' scale { weight: false } }"
              "layer { name: 'conv' conv2d { channels: 4 kernel: 3 } }"
              "layer { name: 'factor' scale { bias: false } } layer { name: 'relu' relu {} }"
              "layer { name: 'one' scale { per: ALL } } layer { name: 'tanh' tanh {} }"
              "layer { name: 'each' scale { per: ELEMENT } } layer { name: 'flat' flatten {} }"
              "layer { name: 'rows' scale { weight: false } }"
              "layer { name: 'head' dense { units: 5 } }" +
              kLoss),
      kImages);
}

TEST(Onnx, RoundTripsSharedParameters) {
  expect_round_trip(
      network(
          "layer { name: 'c' conv2d { channels: 3 kernel: 3 padding: 1 } }"
          "layer { name: 'd' conv2d { channels: 3 kernel: 3 padding: 1 } shared { weight: 'c' } }"
          "layer { name: 'n' batch_norm {} }"
          "layer { name: 'm' batch_norm {} shared { weight: 'n' bias: 'n' } }"
          "layer { name: 'g' group_norm { num_groups: 1 } }"
          "layer { name: 'h' group_norm { num_groups: 1 } shared { weight: 'g' bias: 'g' } }"
          "layer { name: 'flat' flatten {} } layer { name: 'a' dense { units: 5 } }"
          "layer { name: 'tanh' tanh {} }"
          "layer { name: 'b' dense { units: 5 } }"
          "layer { name: 'relu' relu {} }"
          "layer { name: 'e' dense { units: 5 } shared { weight: 'b' bias: 'b' } }" +
          kLoss),
      kImages);
}

// The activation of the input was taken for a normalization.
TEST(Onnx, RoundTripsAnActivationOfTheInput) {
  for (const char* kind : {"gelu", "gelu_tanh", "silu", "sigmoid"}) {
    SCOPED_TRACE(kind);
    ModelInput rows = classified({7}, 3);
    const ModelConfig model = network(fmt::format("layer {{ name: 'act' {} {{}} }}", kind) +
                                      "layer { name: 'fc' dense { units: 3 } }" + kLoss);
    expect_round_trip(model, rows);
    rows.mean = {3};
    rows.stddev = {0.5F};
    expect_round_trip(model, rows);
  }
}

// Makes layers small, to be fast: convolutions with an eighth of the channels, small dense layers.
NetworkConfig narrow(NetworkConfig network) {
  int dense = 0;
  for (const LayerConfig& layer : network.layer()) dense += layer.has_dense();
  for (LayerConfig& layer : *network.mutable_layer()) {
    if (layer.has_conv2d()) {
      layer.mutable_conv2d()->set_channels(std::max<int64_t>(1, layer.conv2d().channels() / 8));
    }
    if (layer.has_dense() && --dense > 0) layer.mutable_dense()->set_units(12);
  }
  return network;
}

TEST(Onnx, RoundTripsEveryZooNetwork) {
  for (const std::string& name : zoo_names()) {
    SCOPED_TRACE(name);
    const ModelInput input = zoo_input(name);
    const NetworkConfig layers = network_of(zoo(name), input);
    // Attention cannot be imported, and recurrent layers cannot be exported.
    const auto is_one_way = [](const LayerConfig& layer) {
      return layer.has_attention() || layer.has_lstm();
    };
    if (std::ranges::any_of(layers.layer(), is_one_way)) continue;
    expect_round_trip(config_of(narrow(layers)), input);
  }
}

TEST(Onnx, RoundTripsNormalization) {
  const ModelConfig model = network(
      "layer { name: 'conv' conv2d { channels: 5 kernel: 3 } } layer { name: 'pool' global_pool {} "
      "}"
      "layer { name: 'flat' flatten {} }" +
      kLoss);
  ModelInput input = kImages;
  input.scale = 1.0F / 255;
  input.mean = {0.4F, 0.5F, 0.6F};
  input.stddev = {0.2F, 0.3F, 0.25F};
  const Weights weights = some_weights(model, input);
  const InputNormalization wanted{input.scale, input.mean, input.stddev};
  EXPECT_EQ(read_onnx(file_of(to_onnx(model, input, weights))).normalization, wanted);
  EXPECT_EQ(read_onnx(file_of(to_onnx(model, input, weights, {.normalize = false}))).normalization,
            InputNormalization());
  expect_round_trip(model, input);

  // One value for all features.
  ModelInput rows = classified({7}, 3);
  rows.mean = {3};
  rows.stddev = {0.5F};
  expect_round_trip(network("layer { name: 'fc' dense { units: 3 } }" + kLoss), rows);
  rows.mean = {1, 2, 3, 4, 5, 6, 7};
  expect_round_trip(network("layer { name: 'fc' dense { units: 3 } }" + kLoss), rows);
}

// The imported normalization applies to pixels from 0 to 255 even if the model takes 0 to 1.
TEST(Onnx, RoundTripsPixelsFromZeroToOne) {
  ModelInput input = classified({3, 8, 8}, 3);
  input.scale = 1.0F / 255;
  input.mean = {0.25F, 0.5F, 0.75F};
  input.stddev = {0.5F};
  const ModelConfig model =
      network("layer { name: 'flat' flatten {} } layer { name: 'fc' dense { units: 3 } }" + kLoss);
  const OnnxExportOptions unit{.input_unit = 255,
                               .image = true,
                               .metadata = {{"image.nominalpixelrange", "normalized_0_1"}}};
  const std::string text = to_onnx(model, input, some_weights(model, input), unit);
  const OnnxModel back = read_onnx(file_of(text));
  EXPECT_FLOAT_EQ(back.normalization.scale, input.scale);
  EXPECT_EQ(back.normalization.mean, input.mean);
  onnx::ModelProto written;
  ASSERT_TRUE(written.ParseFromString(text));
  EXPECT_EQ(written.graph().node(0).op_type(), "Sub") << "nothing is multiplied by 1";
  EXPECT_EQ(written.graph().input(0).type().denotation(), "IMAGE");
}

onnx::ModelProto parsed(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  return model;
}

TEST(Onnx, DescribesTheModel) {
  const ModelConfig model =
      network("layer { name: 'fc' dense { units: 3 } } layer { name: 'drop' dropout {} }" + kLoss);
  const ModelInput rows = classified({7}, 3);
  const Weights weights = some_weights(model, rows);
  const auto written = parsed(
      to_onnx(model, rows, weights, {.softmax = true, .metadata = {{"classes", "[\"a\"]"}}}));
  EXPECT_EQ(written.producer_name(), "trireme");
  EXPECT_EQ(written.metadata_props(0).value(), "[\"a\"]");
  EXPECT_EQ(written.graph().output(0).name(), "probabilities");
  EXPECT_EQ(written.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "N");
  EXPECT_EQ(written.graph().node(0).name(), "fc");
  EXPECT_EQ(written.graph().node(1).op_type(), "Softmax");
  EXPECT_EQ(written.graph().node_size(), 2);
  EXPECT_EQ(written.graph().initializer(0).name(), "fc.weight");
  // The softmax is not imported as a layer.
  const OnnxModel back = read_onnx(file_of(written.SerializeAsString()));
  EXPECT_EQ(back.network.layer_size(), 2);
  EXPECT_TRUE(back.network.layer(1).has_softmax_cross_entropy());

  ModelInput numbers = rows;
  numbers.classes = 0;
  numbers.target = {DType::kF32, {3}, Layout::row_major()};
  const ModelConfig regression = network(
      "layer { name: 'fc' dense { units: 3 } } layer { name: 'loss' mean_squared_error {} }");
  EXPECT_EQ(parsed(to_onnx(regression, numbers, weights)).graph().output(0).name(), "output");
}

TEST(Onnx, OmitsUnusedLayers) {
  const ModelConfig model = network(
      "layer { name: 'fc' dense { units: 3 } } layer { name: 'aside' dense { units: 9 } }"
      "layer { name: 'loss' softmax_cross_entropy {} input: 'fc' }");
  const ModelInput rows = classified({7}, 3);
  Weights weights = some_weights(model, rows);
  weights.erase("aside.weight");
  EXPECT_EQ(parsed(to_onnx(model, rows, weights)).graph().node_size(), 1);
}

TEST(Onnx, RejectsMissingAndTooLargeWeights) {
  const ModelConfig model = network("layer { name: 'fc' dense { units: 3 } }" + kLoss);
  const ModelInput rows = classified({7}, 3);
  Weights weights = some_weights(model, rows);
  weights["fc.bias"].shape = {4};
  expect_words(error_message<ConfigError>([&] { to_onnx(model, rows, weights); }),
               {"fc.bias", "[4]", "[3]"});
  weights.erase("fc.bias");
  expect_words(error_message<ConfigError>([&] { to_onnx(model, rows, weights); }), {"fc.bias"});

  const ModelConfig wide = network("layer { name: 'fc' dense { units: 600000 } }" + kLoss);
  const ModelInput many = classified({1000}, 3);
  Weights without_values;
  without_values["fc.weight"].shape = {600000, 1000};
  without_values["fc.bias"].shape = {600000};
  expect_words(error_message<ConfigError>([&] { to_onnx(wide, many, without_values); }),
               {"2 GiB", "safetensors"});
}

TEST(Onnx, RejectsDamagedFiles) {
  const ModelConfig model = network(
      "layer { name: 'conv' conv2d { channels: 5 kernel: 3 } } layer { name: 'pool' global_pool {} "
      "}"
      "layer { name: 'flat' flatten {} }" +
      kLoss);
  const std::string bytes = to_onnx(model, kImages, some_weights(model, kImages));
  for (size_t length = 0; length + 1 < bytes.size(); length += 3) {
    const std::filesystem::path path = file_of(bytes.substr(0, length));
    EXPECT_THROW(read_onnx(path), Error) << length;
  }
  EXPECT_NE(
      error_message<DataError>([] { read_onnx(file_of("no model at all")); }).find("model.onnx"),
      std::string::npos);
  EXPECT_NE(
      error_message<DataError>([] { read_onnx(file_of("<!DOCTYPE html>")); }).find("but HTML"),
      std::string::npos);
  EXPECT_NE(
      error_message<ConfigError>([] { read_onnx("/nowhere/model.onnx"); }).find("no such file"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::model
