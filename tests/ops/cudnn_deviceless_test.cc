// cuDNN can choose and build engines for a device that is only described to it. This checks our use
// of cuDNN against the real library, if it is installed, on machines without a GPU. Engines that it
// compiles at run time are not included, because they need a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/cuda/cudnn.h"
#include "ops/window.h"
#include "tests/ops/absent_gpu.h"

namespace trireme::ops::cuda {
namespace {

struct Layer {
  int64_t channels_in, extent, channels_out, kernel, stride;
  int64_t groups = 1, dilation = 1;
  int64_t samples = 64;
};

// All convolutions of ResNet-50 on images of 224x224.
std::vector<Layer> resnet50() {
  std::vector<Layer> layers{{3, 224, 64, 7, 2}};
  int64_t in = 64, extent = 56;
  for (int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2;
    layers.insert(layers.end(), {{in, extent, width, 1, 1},
                                 {width, extent, width, 3, stride},
                                 {in, extent, 4 * width, 1, stride}});
    in = 4 * width;
    extent /= stride;
    layers.insert(
        layers.end(),
        {{width, extent, in, 1, 1}, {in, extent, width, 1, 1}, {width, extent, width, 3, 1}});
  }
  return layers;
}

std::vector<Layer> unusual() {
  return {{1, 28, 6, 5, 1},        {17, 5, 17, 3, 1},        {6, 7, 3, 3, 1, 1, 1, 5},
          {32, 14, 32, 3, 1, 32},  {32, 14, 64, 3, 1, 2},    {6, 5, 9, 3, 1, 3},
          {16, 8, 16, 3, 1, 1, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, {16, 1, 16, 3, 1, 1, 1, 2}};
}

Convolution convolution(const Layer& layer, ConvolutionPass pass, DType dtype, bool tf32) {
  const int64_t reach = layer.dilation * (layer.kernel - 1) + 1;
  const int64_t padding = reach / 2;
  const int64_t extent = windows(layer.extent, layer.kernel, layer.stride, padding, layer.dilation);
  return {
      .pass = pass,
      .geometry = {.stride = {layer.stride, layer.stride},
                   .padding = {padding, padding},
                   .dilation = {layer.dilation, layer.dilation},
                   .groups = layer.groups},
      .x = {layer.samples, layer.channels_in, layer.extent, layer.extent},
      .weight = {layer.channels_out, layer.channels_in / layer.groups, layer.kernel, layer.kernel},
      .y = {layer.samples, layer.channels_out, extent, extent},
      .in = dtype,
      .out = dtype,
      .tf32 = tf32};
}

std::string text(const Convolution& c) {
  return fmt::format("pass {} x {} weight {} groups {} {}{}", static_cast<int>(c.pass),
                     c.x.to_string(), c.weight.to_string(), c.geometry.groups, name_of(c.in),
                     c.tf32 ? " tf32" : "");
}

class CudnnDeviceless : public testing::TestWithParam<AbsentGpu> {
 protected:
  void SetUp() override {
    const auto library = std::make_shared<const trireme::cuda::Library>(
        "cuDNN", std::vector<std::string>{"libcudnn.so.9"});
    if (!library->problem().empty()) GTEST_SKIP() << library->problem();
    try {
      cudnn_ = std::make_shared<Cudnn>(library, json(GetParam()), GetParam().version / 10);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "this version of cuDNN requires another device description: " << error.what();
    }
  }

  // Returns how many algorithms can be built, at max `max`.
  int algorithms(const Convolution& convolution, int max) const {
    int count = 0;
    for (const Candidate& candidate : list_convolutions(cudnn_, convolution)) {
      if (count == max) break;
      const AlgorithmPtr algorithm = candidate.build();
      if (!algorithm) continue;
      EXPECT_LE(algorithm->workspace_bytes(), static_cast<size_t>(kWorkspaceLimit));
      ++count;
    }
    return count;
  }

  void expect_all(const std::vector<Layer>& layers) const {
    for (const Layer& layer : layers) {
      for (auto [dtype, tf32] : {std::pair(DType::kF32, false), std::pair(DType::kF32, true),
                                 std::pair(DType::kBF16, false), std::pair(DType::kF16, false)}) {
        for (auto pass : {ConvolutionPass::kForward, ConvolutionPass::kBackwardData,
                          ConvolutionPass::kBackwardWeights}) {
          const Convolution c = convolution(layer, pass, dtype, tf32);
          EXPECT_EQ(algorithms(c, 1), 1) << text(c);
        }
      }
    }
  }

  std::shared_ptr<Cudnn> cudnn_;
};

TEST_P(CudnnDeviceless, SupportsAllConvolutionsOfResNet50) { expect_all(resnet50()); }

TEST_P(CudnnDeviceless, SupportsUnusualConvolutions) { expect_all(unusual()); }

TEST_P(CudnnDeviceless, FusesBiasAndReLU) {
  for (const Layer& layer : resnet50()) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Convolution c = convolution(layer, ConvolutionPass::kForward, dtype, false);
      c.bias = dtype;
      EXPECT_EQ(algorithms(c, 1), 1) << text(c);
      c.relu = true;
      EXPECT_EQ(algorithms(c, 1), 1) << text(c);
    }
  }
}

TEST_P(CudnnDeviceless, UsesTensorCoresForF32OnlyIfTF32IsAllowed) {
  const Layer layer{64, 56, 64, 3, 1};
  for (auto pass : {ConvolutionPass::kForward, ConvolutionPass::kBackwardData,
                    ConvolutionPass::kBackwardWeights}) {
    constexpr int kAll = 100;
    EXPECT_LT(algorithms(convolution(layer, pass, DType::kF32, false), kAll),
              algorithms(convolution(layer, pass, DType::kF32, true), kAll));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnDeviceless, testing::ValuesIn(kAbsentGpus),
                         [](const auto& gpu) { return std::string(gpu.param.name); });

}  // namespace
}  // namespace trireme::ops::cuda
