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
    emulation::convolution_delays().few_channels_ms = 0;
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

class ConvolutionTest : public TuningTest {
 protected:
  // A backend without a tuning cache, which measures.
  std::shared_ptr<ops::cuda::Context> context() {
    return std::make_shared<ops::cuda::Context>(
        ops::cuda::Context{*device_, ops::CudaOptions{},
                           std::make_shared<ops::cuda::Libraries>(ops::cuda::Libraries{
                               nullptr, nullptr, ops::cuda::Tuner(*device_, "", "emulated cuDNN"),
                               ops::cuda::Tuner(*device_, "", "emulated cuBLASLt")})});
  }

  // Runs the op on bf16 tensors of ones. Returns its result.
  template <class T, class Op>
  std::vector<T> run(const Op& op, const std::vector<TensorSpec>& specs,
                     const std::vector<int>& inputs, int output) {
    const ops::cuda::Plan planned = plan(op, context(), specs);
    scratch_bytes_ = planned->scratch_bytes();
    const auto stream = device_->create_stream(StreamKind::kCompute);
    std::vector<Buffer> buffers;
    std::vector<void*> args(specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      args[i] = buffers.emplace_back(device_->allocate(specs[i].bytes())).data();
    }
    for (int i : inputs) {
      const std::vector<uint16_t> ones(static_cast<size_t>(specs[i].shape.elements()), 0x3F80);
      device_->copy(args[i], ones.data(), specs[i].bytes(), *stream);
    }
    const Buffer scratch = device_->allocate(scratch_bytes_);
    planned->encode(*stream, args, scratch.data());
    std::vector<T> result(static_cast<size_t>(specs[output].shape.elements()));
    device_->copy(result.data(), args[output], specs[output].bytes(), *stream);
    stream->synchronize();
    return result;
  }

  static TensorSpec tensor(DType dtype, Shape shape) {
    return {dtype, std::move(shape), Layout::channels_last()};
  }

  size_t scratch_bytes_ = 0;  // of the latest plan
};

// Sums of 257 ones, which bf16 rounds to 256.
class WeightGradientTest : public ConvolutionTest {
 protected:
  float gradient() {
    using Op = ops::Conv2dBackwardWeights;
    return run<float>(Op{},
                      {tensor(DType::kBF16, {1, 8, 257, 1}), tensor(DType::kBF16, {1, 8, 257, 1}),
                       tensor(DType::kF32, {8, 8, 1, 1}), ops::absent()},
                      {Op::kX, Op::kDy}, Op::kDweight)[0];
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

// Images with three channels, which are padded to eight only if that is faster.
TEST_F(ConvolutionTest, FewChannelsArePaddedIfThatIsFaster) {
  constexpr size_t kPaddedBytes = 2 * 5 * 4 * 8 * sizeof(uint16_t);
  constexpr int kDelay = 5;
  emulation::convolution_delays().uniform_ms = kDelay;
  emulation::convolution_delays().mixed_ms = kDelay;
  for (const bool padded : {true, false}) {
    emulation::convolution_delays().few_channels_ms = padded ? kDelay : -kDelay;
    const TensorSpec x = tensor(DType::kBF16, {2, 3, 5, 4}), y = tensor(DType::kBF16, {2, 4, 4, 3});
    const Shape weight{4, 3, 2, 2};
    using Forward = ops::Conv2dForward;
    const auto sums = run<uint16_t>(Forward{}, {x, tensor(DType::kBF16, weight), ops::absent(), y},
                                    {Forward::kX, Forward::kWeight}, Forward::kY);
    EXPECT_EQ(sums, std::vector<uint16_t>(sums.size(), 0x4140));  // 12
    EXPECT_EQ(scratch_bytes_ >= kPaddedBytes, padded);
    using Backward = ops::Conv2dBackwardWeights;
    const std::vector<int> inputs{Backward::kX, Backward::kDy};
    const auto rounded =
        run<uint16_t>(Backward{}, {x, y, tensor(DType::kBF16, weight), ops::absent()}, inputs,
                      Backward::kDweight);
    EXPECT_EQ(rounded, std::vector<uint16_t>(rounded.size(), 0x41C0));  // 24
    EXPECT_EQ(scratch_bytes_ >= kPaddedBytes, padded);
    const auto exact = run<float>(Backward{}, {x, y, tensor(DType::kF32, weight), ops::absent()},
                                  inputs, Backward::kDweight);
    EXPECT_EQ(exact, std::vector<float>(exact.size(), 24));
    EXPECT_EQ(scratch_bytes_ >= kPaddedBytes, padded);
  }
}

}  // namespace
}  // namespace trireme::cuda
