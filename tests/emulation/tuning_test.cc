// Measuring algorithms on a GPU that may fail.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "convolution_delays.h"
#include "core/cuda/cuda.h"
#include "emulation.h"
#include "ops/cuda/libraries.h"
#include "ops/cuda/plans.h"

namespace trireme::cuda {
namespace {

class TuningTest : public testing::Test {
 protected:
  ~TuningTest() override {
    emulation::convolution_delays().mixed_ms = 0;
    emulation::convolution_delays().uniform_ms = 0;
    emulation::recover();
  }
  std::unique_ptr<Device> device_ = create_cuda_device(0);
};

class Work final : public ops::cuda::Algorithm {
 public:
  explicit Work(bool fails, std::vector<cudaStream_t>* streams = nullptr)
      : fails_(fails), streams_(streams) {}
  size_t workspace_bytes() const override { return 0; }
  void run(Stream& stream, ops::Args, void*) const override {
    if (streams_) streams_->push_back(handle(stream));
    check(emulation::enqueue(handle(stream), "work",
                             [fails = fails_] {
                               if (fails) throw Error("an illegal memory access");
                             }),
          "work");
  }

 private:
  bool fails_;
  std::vector<cudaStream_t>* streams_;
};

ops::cuda::Candidate candidate(const std::string& name, bool fails,
                               std::vector<cudaStream_t>* streams = nullptr) {
  return {name, [=] { return std::make_shared<const Work>(fails, streams); }};
}

// After the failure all CUDA calls fail.
TEST_F(TuningTest, ErrorNamesTheAlgorithmThatBrokeTheDevice) {
  ops::cuda::Tuner tuner(*device_, "", "a library");
  try {
    tuner.choose("a convolution", {}, [] {
      return std::vector{candidate("working", false), candidate("faulty", true),
                         candidate("not_measured", false)};
    });
    FAIL() << "nothing can run after the failure";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("measuring a convolution"), std::string::npos) << message;
    EXPECT_NE(message.find("faulty: "), std::string::npos) << message;
    EXPECT_NE(message.find("an illegal memory access"), std::string::npos) << message;
    EXPECT_EQ(message.find("not_measured"), std::string::npos) << message;
  }
}

// The handle of a library keeps referring to the stream of its latest work.
TEST_F(TuningTest, StreamLivesAsLongAsTheTuner) {
  ops::cuda::Tuner tuner(*device_, "", "a library");
  std::vector<cudaStream_t> streams;
  for (const char* key : {"one", "two"}) {
    tuner.choose(key, {}, [&] {
      return std::vector{candidate("a", false, &streams), candidate("b", false, &streams)};
    });
    EXPECT_EQ(cudaStreamQuery(streams.back()), cudaSuccess) << "the stream was destroyed";
  }
  EXPECT_EQ(streams.front(), streams.back());
}

// Sums of 257 ones, which bf16 rounds to 256.
class WeightGradientTest : public TuningTest {
 protected:
  float gradient() {
    const auto context = std::make_shared<ops::cuda::Context>(
        ops::cuda::Context{*device_, ops::CudaOptions{},
                           std::make_shared<ops::cuda::Libraries>(ops::cuda::Libraries{
                               nullptr, nullptr, ops::cuda::Tuner(*device_, "", "emulated cuDNN"),
                               ops::cuda::Tuner(*device_, "", "emulated cuBLASLt")})});
    const std::vector<TensorSpec> specs{{DType::kBF16, {1, 8, 257, 1}, Layout::channels_last()},
                                        {DType::kBF16, {1, 8, 257, 1}, Layout::channels_last()},
                                        {DType::kF32, {8, 8, 1, 1}, Layout::channels_last()},
                                        ops::absent()};
    const ops::cuda::Plan planned = plan(ops::Conv2dBackwardWeights{}, context, specs);
    const auto stream = device_->create_stream(StreamKind::kCompute);
    const std::vector<uint16_t> ones(257 * 8, 0x3F80);
    const Buffer x = device_->allocate(specs[0].bytes()), dy = device_->allocate(specs[1].bytes());
    const Buffer dweight = device_->allocate(specs[2].bytes());
    const Buffer scratch = device_->allocate(planned->scratch_bytes());
    device_->copy(x.data(), ones.data(), x.bytes(), *stream);
    device_->copy(dy.data(), ones.data(), dy.bytes(), *stream);
    std::vector<void*> args(ops::Conv2dBackwardWeights::kArgs);
    args[ops::Conv2dBackwardWeights::kX] = x.data();
    args[ops::Conv2dBackwardWeights::kDy] = dy.data();
    args[ops::Conv2dBackwardWeights::kDweight] = dweight.data();
    planned->encode(*stream, args, scratch.data());
    std::vector<float> result(64);
    device_->copy(result.data(), dweight.data(), dweight.bytes(), *stream);
    stream->synchronize();
    return result[0];
  }
};

TEST_F(WeightGradientTest, IsWrittenAsF32IfThatIsFaster) {
  emulation::convolution_delays().uniform_ms = 20;
  EXPECT_EQ(gradient(), 257);
}

TEST_F(WeightGradientTest, IsCastIfThatIsFaster) {
  emulation::convolution_delays().mixed_ms = 20;
  EXPECT_EQ(gradient(), 256);
}

}  // namespace
}  // namespace trireme::cuda
