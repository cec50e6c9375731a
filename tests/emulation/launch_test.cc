// Kernels launched through Trireme's device, as in ops/cuda.
#include "core/cuda/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "kernel.h"

namespace trireme::cuda {
namespace {

template <class T>
__global__ void scale_kernel(T* x, T factor, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) x[i] *= factor;
}

__global__ void sum_kernel(const float* __restrict__ x, float* __restrict__ sums, int count) {
  float* parts = dynamic_shared<float>();
  float sum = 0;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x) {
    sum += x[blockIdx.x * static_cast<unsigned>(count) + i];
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (unsigned i = 1; i < blockDim.x / 32; ++i) sum += parts[i];
  sums[blockIdx.x] = sum;
}

class LaunchTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device = create_cuda_device(0);
  std::unique_ptr<Stream> stream = device->create_stream(StreamKind::kCompute);
};

TEST_F(LaunchTest, KernelsReadAndWriteDeviceMemory) {
  std::vector<float> x(1000);
  std::iota(x.begin(), x.end(), 0.0f);
  const Buffer there = device->allocate(x.size() * sizeof(float));
  device->copy(there.data(), x.data(), there.bytes(), *stream);
  launch("scale", scale_kernel<float>, {dim3(4), dim3(256)}, *stream, there.as<float>(), 3,
         x.size());
  device->copy(x.data(), there.data(), there.bytes(), *stream);
  stream->synchronize();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], 3 * static_cast<float>(i));
}

TEST_F(LaunchTest, RecordedKernelsKeepTheirArguments) {
  constexpr int kRows = 7, kCount = 300;
  const Buffer x = device->allocate(kRows * kCount * sizeof(float));
  const Buffer sums = device->allocate(kRows * sizeof(float));
  const std::vector<float> ones(kRows * kCount, 1.0f);
  device->copy(x.data(), ones.data(), x.bytes(), *stream);
  auto recording = device->record(*stream, [&] {
    launch("scale", scale_kernel<float>, {dim3((kRows * kCount + 255) / 256), dim3(256)}, *stream,
           x.as<float>(), 2, kRows * kCount);
    launch("sum", sum_kernel, {dim3(kRows), dim3(128), 4 * sizeof(float)}, *stream, x.as<float>(),
           sums.as<float>(), kCount);
  });
  std::vector<float> got(kRows);
  for (int replay = 1; replay <= 3; ++replay) {
    recording->replay(*stream);
    device->copy(got.data(), sums.data(), sums.bytes(), *stream);
    stream->synchronize();
    EXPECT_EQ(got, std::vector<float>(kRows, static_cast<float>(kCount << replay)));
  }
}

TEST_F(LaunchTest, InvalidGridErrorNamesTheKernel) {
  try {
    launch("scale", scale_kernel<float>, {dim3(1), dim3(2048)}, *stream, nullptr, 1, 0);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_EQ(std::string(error.what()).find("scale failed: cudaErrorInvalidConfiguration"), 0u)
        << error.what();
  }
}

// Device 0 is current in new threads; launching kernels of another device fails there.
TEST_F(LaunchTest, ThreadsUseTheDeviceOfTheStream) {
  setenv("TRIREME_EMULATION_DEVICES", "2", 1);
  EXPECT_EQ(query_cuda().devices, 2);
  EXPECT_NE(query_cuda().ids[0], query_cuda().ids[1]);
  const auto second = create_cuda_device(1);
  const auto other = second->create_stream(StreamKind::kCompute);
  const Buffer there = second->allocate(1000 * sizeof(float));
  const auto scale = [&] {
    launch("scale", scale_kernel<float>, {dim3(4), dim3(256)}, *other, there.as<float>(), 3, 1000);
    other->synchronize();
  };
  EXPECT_NO_THROW(scale());
  std::thread([&] { EXPECT_NO_THROW(scale()); }).join();
  const cudaStream_t raw = handle(*other);
  std::thread([&] {
    EXPECT_EQ(emulation::launch("nothing", {1, 1}, raw, [] {}), cudaErrorInvalidResourceHandle);
  }).join();
  unsetenv("TRIREME_EMULATION_DEVICES");
}

TEST_F(LaunchTest, EveryWaitReportsAnExternalFailure) {
  const auto event = device->create_event();
  stream->record(*event);
  EXPECT_NO_THROW(event->synchronize());
  int ran = 0;
  auto* count = &ran;
  std::thread([&] {
    fail(*device, std::make_exception_ptr(CommError("peer 3 is gone")));
    fail(*device, std::make_exception_ptr(CommError("and so is the rest")));
  }).join();
  stream->run(Task([count] { ++*count; }));
  for (const auto& wait : std::vector<std::function<void()>>{[&] { event->synchronize(); },
                                                             [&] { stream->synchronize(); }}) {
    try {
      wait();
      ADD_FAILURE() << "no failure was reported";
    } catch (const CommError& error) {
      EXPECT_STREQ(error.what(), "peer 3 is gone");
    }
  }
  EXPECT_EQ(ran, 0);
}

TEST_F(LaunchTest, RejectsDevicesAndStreamsOfOtherKinds) {
  const auto cpu = create_cpu_device(1);
  const auto other = cpu->create_stream(StreamKind::kCompute);
  EXPECT_THROW(properties(*cpu), Error);
  EXPECT_THROW(handle(*other), Error);
}

TEST_F(LaunchTest, ThisIsTheEmulation) {
  EXPECT_EQ(device->description(), "Emulated device, 4 SMs, 16 GiB, compute capability 9.0");
  EXPECT_EQ(properties(*device).shared_bytes_per_block, 227u << 10);
  EXPECT_FALSE(device->load().has_value());
}

}  // namespace
}  // namespace trireme::cuda
