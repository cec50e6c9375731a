#include "trainer/config/import_model.h"

#include <gtest/gtest.h>

#include <fstream>

#include "model/onnx/onnx.h"
#include "tests/trainer/temporary_folder.h"

namespace trireme::train {
namespace {

// A model of images [3, 4, 4] in 5 classes that begins with ImageNet's normalization.
class ImportModel : public testing::Test {
 protected:
  void SetUp() override { write(1.0F / 255); }

  // `scale` is the factor by which the model multiplies its input before it normalizes it.
  void write(float scale, bool by_trireme = true) {
    ModelConfig model;
    NetworkConfig& network = *model.mutable_network();
    network.set_name("others");
    network.add_layer()->mutable_flatten();
    LayerConfig& dense = *network.add_layer();
    dense.set_name("fc");
    dense.mutable_dense()->set_units(5);
    network.add_layer()->mutable_softmax_cross_entropy();
    model::ModelInput input;
    input.input = {DType::kU8, {3, 4, 4}, Layout::row_major()};
    input.target = {DType::kI32, Shape{}, Layout::row_major()};
    input.classes = 5;
    input.scale = scale;
    input.mean = {0.5F, 0.25F, 0.75F};
    input.stddev = {0.2F};
    const model::Weights weights = {{"fc.weight", {{5, 48}, std::vector<float>(240, 0.5F)}},
                                    {"fc.bias", {{5}, std::vector<float>(5)}}};
    file_ = (folder_.path() / "others.onnx").string();
    std::string bytes = model::to_onnx(model, input, weights);
    if (!by_trireme) bytes.replace(bytes.find("trireme"), 7, "another");
    std::ofstream(file_, std::ios::binary) << bytes;
  }

  Config load(const std::string& data, const std::string& more = "") {
    return parse_config("model { onnx: '" + file_ + "' " + more + "} data { " + data +
                            " } batch { global: 4 } train { epochs: 1 } "
                            "schedule { learning_rate: 0.1 }",
                        "run.txtpb", {});
  }

  TemporaryFolder folder_;
  std::string file_;
};

TEST_F(ImportModel, SetsTheNetworkAndInitFrom) {
  const Config config = load("synthetic {}");
  const ModelConfig& model = config.run.model();
  ASSERT_TRUE(model.has_network());
  EXPECT_EQ(model.network().name(), "others");
  EXPECT_EQ(model.network().layer(1).name(), "fc");
  EXPECT_TRUE(model.network().layer(2).has_softmax_cross_entropy());
  EXPECT_EQ(model.init_from(), file_);
  EXPECT_EQ(load("synthetic {}", "init_from: 'other.safetensors'").run.model().init_from(),
            "other.safetensors");
  // The saved configuration does not need the file.
  std::filesystem::remove(file_);
  EXPECT_NO_THROW(parse_config(to_text(config.run), "again.txtpb", {}));
}

TEST_F(ImportModel, LastLayerHasOneUnitPerClassOfTheData) {
  const ModelConfig model = load("synthetic {}").run.model();
  EXPECT_FALSE(model.network().layer(1).dense().has_units());
  model::ModelInput input;
  input.input = {DType::kF32, {3, 4, 4}, Layout::row_major()};
  input.target = {DType::kI32, Shape{}, Layout::row_major()};
  input.classes = 7;
  EXPECT_EQ(model::network_of(model, input).layer(1).dense().units(), 7);
}

TEST_F(ImportModel, UsesTheNormalizationOfTheFile) {
  const Config config = load("synthetic {}");
  const NormalizeConfig& normalize = config.run.data().normalize();
  ASSERT_EQ(normalize.mean_size(), 3);
  EXPECT_NEAR(normalize.mean(1), 0.25, 1e-6);
  EXPECT_NEAR(normalize.std(0), 0.2, 1e-6);
  EXPECT_TRUE(config.warnings.empty());
  // Values of CSV files are not divided by 255.
  const Config rows = load("csv { train_file: 'x.csv' shape: [3, 4, 4] }");
  EXPECT_NEAR(rows.run.data().normalize().mean(1), 0.25 * 255, 1e-3);
}

// As in models of PyTorch whose input is that of ToTensor.
TEST_F(ImportModel, RecognizesPixelsFromZeroToOne) {
  write(1);
  const Config config = load("synthetic {}");
  EXPECT_NEAR(config.run.data().normalize().mean(1), 0.25, 1e-6);
  EXPECT_NEAR(config.run.data().normalize().std(0), 0.2, 1e-6);
  EXPECT_TRUE(load("synthetic {} normalize { mean: [0.5, 0.25, 0.75] std: 0.2 }").warnings.empty());
  const Config rows = load("csv { train_file: 'x.csv' shape: [3, 4, 4] }");
  EXPECT_NEAR(rows.run.data().normalize().mean(1), 0.25, 1e-6);
}

// The normalization of a run is in the file that it exports, so that it must not be applied twice.
TEST_F(ImportModel, OwnFilesAreNotNormalizedDifferently) {
  EXPECT_TRUE(load("synthetic {} normalize { mean: [0.5, 0.25, 0.75] std: [0.2, 0.2, 0.2] }")
                  .warnings.empty());
  try {
    load("synthetic {} normalize { mean: [0.5, 0.3, 0.75] std: 0.2 }");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("run.txtpb:1: data.normalize: is mean: [0.5, 0.3, 0.75] std: [0.2]"), 0U)
        << message;
    EXPECT_NE(message.find("remove data.normalize"), std::string::npos) << message;
  }
}

// Operators of other files are computed on top of what the configuration does. They were dropped.
TEST_F(ImportModel, NormalizesAfterTheDataIsNormalized) {
  write(1, /*by_trireme=*/false);
  const auto normalize = [this](const std::string& data) {
    return load(data).run.data().normalize();
  };
  // ((x - 1) / 2 - 0.25) / 0.2
  const NormalizeConfig both =
      normalize("csv { train_file: 'x.csv' } normalize { mean: 1 std: 2 }");
  EXPECT_NEAR(both.mean(1), 1.5, 1e-6);
  EXPECT_NEAR(both.std(0), 0.4, 1e-6);
  EXPECT_NEAR(normalize("synthetic {} normalize { mean: [0, 1, 2] std: 2 }").mean(2), 3.5, 1e-6);
  EXPECT_NEAR(normalize("csv { train_file: 'x.csv' scale: 0.5 }").mean(1), 0.25, 1e-6);
  EXPECT_NEAR(normalize("npy { train_inputs: 'x.npy' train_targets: 'y.npy' }").mean(1), 0.25,
              1e-6);
  const std::string same = "synthetic {} normalize { mean: [0.5, 0.25, 0.75] std: 0.2 }";
  EXPECT_NEAR(normalize(same).mean(1), 0.25 + 0.2 * 0.25, 1e-6);
  EXPECT_NE(load(same).warnings.back().find("in the same way as data.normalize"),
            std::string::npos);
  try {
    load("csv { train_file: 'x.csv' } normalize { mean: [1, 2] std: 2 }");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("different numbers of channels"), std::string::npos);
  }
  // Pixels from 0 to 255 that the file divides by 255 itself.
  write(1.0F / 255, /*by_trireme=*/false);
  EXPECT_NEAR(normalize("synthetic {}").mean(1), 0.25, 1e-6);
}

TEST_F(ImportModel, UsesMeanSquaredErrorForRegression) {
  const ModelConfig model =
      load("csv { train_file: 'x.csv' shape: [3, 4, 4] regression: true }").run.model();
  EXPECT_TRUE(model.network().layer(2).has_mean_squared_error());
  EXPECT_EQ(model.network().layer(1).dense().units(), 5);
}

TEST_F(ImportModel, ErrorsNameTheConfigurationField) {
  std::filesystem::remove(file_);
  try {
    load("synthetic {}");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find("run.txtpb:1: model.onnx: " + file_), 0U)
        << error.what();
  }
}

}  // namespace
}  // namespace trireme::train
