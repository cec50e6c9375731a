// cuDNN accepts all attention of the zoo, for devices that are only described to it. Its engines
// are compiled at run time and loaded by the driver, so they can be chosen here, but not built: the
// stub of the driver in the CUDA toolkit loads nothing. Convolutions are in
// cudnn_deviceless_test.cc, where a stub would add engines that fail.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "ops/cuda/cudnn.h"
#include "tests/ops/absent_gpu.h"

namespace trireme::ops::cuda {
namespace {

// Attention of the zoo's transformers, and lengths and heads that are unusual.
std::vector<FusedAttention> attentions() {
  const auto attention = [](int64_t samples, int64_t length, int64_t heads, int64_t kv_heads,
                            int64_t dim, bool causal, bool padded) {
    return FusedAttention{
        .shape = {.heads = heads, .kv_heads = kv_heads, .causal = causal, .scale = 0.125F},
        .samples = samples,
        .length = length,
        .dim = dim,
        .padded = padded};
  };
  return {
      attention(64, 256, 6, 6, 64, true, false),    // gpt-mini
      attention(8, 1024, 12, 12, 64, true, false),  // gpt2-124m
      attention(64, 256, 6, 2, 64, true, false),    // llama-mini
      attention(64, 128, 4, 4, 64, false, true),    // bert-mini
      attention(64, 128, 4, 4, 64, false, false),   // bert-mini without padding
      attention(64, 197, 3, 3, 64, false, false),   // vit-tiny
      attention(3, 65, 4, 2, 64, false, true),     attention(3, 65, 4, 2, 64, true, true),
      attention(2, 2, 2, 1, 8, true, false),       attention(2, 130, 2, 2, 128, true, false),
  };
}

class CudnnAttention : public testing::TestWithParam<AbsentGpu> {
 protected:
  void SetUp() override {
    // cuDNN finds it by its name, libcuda.so.1.
    if (!dlopen(TRIREME_DRIVER_STUB, RTLD_NOW)) GTEST_SKIP() << dlerror();
    const auto library = std::make_shared<const trireme::cuda::Library>(
        "cuDNN", std::vector<std::string>{"libcudnn.so.9"});
    if (!library->problem().empty()) GTEST_SKIP() << library->problem();
    try {
      cudnn_ = std::make_shared<Cudnn>(library, json(GetParam()), GetParam().version / 10);
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "this version of cuDNN requires another device description: " << error.what();
    }
  }

  std::shared_ptr<Cudnn> cudnn_;
};

TEST_P(CudnnAttention, SupportsTheZoo) {
  std::vector<FusedAttention> all = attentions();
  all.push_back(all.front());
  all.back().dtype = DType::kF16;
  for (FusedAttention a : all) {
    for (auto pass :
         {AttentionPass::kInference, AttentionPass::kForward, AttentionPass::kBackward}) {
      a.pass = pass;
      EXPECT_FALSE(list_attention(cudnn_, a).empty()) << key(a);
    }
  }
}

// What the op then computes with Trireme's own kernels.
TEST_P(CudnnAttention, RefusesTheRest) {
  const FusedAttention a{.pass = AttentionPass::kBackward,
                         .shape = {.heads = 2, .kv_heads = 2, .causal = true, .scale = 0.125F},
                         .samples = 2,
                         .length = 64,
                         .dim = 64};
  FusedAttention f32 = a, odd = a, one = a;
  f32.dtype = DType::kF32;
  odd.dim = 36;
  one.length = 1;
  for (const FusedAttention& refused : {f32, odd, one}) {
    EXPECT_THROW(list_attention(cudnn_, refused), Unsupported) << key(refused);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnAttention, testing::ValuesIn(kAbsentGpus),
                         [](const auto& gpu) { return std::string(gpu.param.name); });

}  // namespace
}  // namespace trireme::ops::cuda
