#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "emulation.h"
#include "kernel.h"

namespace trireme::emulation {
namespace {

class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&a, &b}) {
      ASSERT_EQ(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0), cudaSuccess);
    }
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), kBytes), cudaSuccess);
  }
  void TearDown() override {
    recover();
    EXPECT_EQ(cudaFree(data), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(b), cudaSuccess);
  }

  void add(cudaStream_t stream, std::function<void()> work) {
    ASSERT_EQ(enqueue(stream, "work", std::move(work)), cudaSuccess);
  }
  void begin(cudaStream_t stream) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  void order(cudaStream_t first, cudaStream_t then) {
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(then, event, 0), cudaSuccess);
  }

  static constexpr size_t kBytes = 1000;
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  char* data = nullptr;
};

// Work in both streams, with or without the event between them, for many seeds.
TEST_F(RuntimeTest, MissingWaitIsDetectedForSomeSeed) {
  for (bool waits : {true, false}) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      set_seed(seed);
      int value = 0, seen = 0;
      add(a, [&] { value = 1; });
      if (waits) order(a, b);
      add(b, [&] { seen = value; });
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      wrong += seen != 1;
    }
    if (waits) {
      EXPECT_EQ(wrong, 0);
    } else {
      EXPECT_GT(wrong, 0);
      EXPECT_LT(wrong, 20);
    }
  }
}

TEST_F(RuntimeTest, MissingWaitWithinAGraphIsDetected) {
  for (bool waits : {true, false}) {
    int wrong = 0;
    int value = 0, seen = 0;
    begin(a);
    order(a, b);
    add(a, [&] { value = 1; });
    if (waits) order(a, b);
    add(b, [&] { seen = value; });
    order(b, a);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      set_seed(seed);
      value = seen = 0;
      ASSERT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
      wrong += seen != 1;
    }
    EXPECT_EQ(wrong > 0, !waits);
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
}

TEST_F(RuntimeTest, SeedDeterminesTheOrder) {
  const auto order_of = [&](uint64_t seed) {
    set_seed(seed);
    std::string order;
    for (int i = 0; i < 10; ++i) {
      add(a, [&] { order += 'a'; });
      add(b, [&] { order += 'b'; });
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return order;
  };
  EXPECT_EQ(order_of(3), order_of(3));
  EXPECT_NE(order_of(1) + order_of(2) + order_of(3), order_of(4) + order_of(5) + order_of(6));
}

TEST_F(RuntimeTest, WorkRunsWhenWaitedForOrEventually) {
  std::atomic<bool> ran = false;
  add(a, [&] { ran = true; });
  EXPECT_FALSE(ran);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!ran && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(ran);
}

TEST_F(RuntimeTest, WaitIsForTheLatestRecordBeforeIt) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    set_seed(seed);
    int value = 0, seen = -1;
    add(a, [&] { value = 1; });
    order(a, b);
    add(a, [&] { value = 2; });
    ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);  // b does not wait for this record
    add(b, [&] { seen = value; });
    ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_GE(seen, 1);
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(value, 2);
  }
}

// --- Capture ---

TEST_F(RuntimeTest, UnjoinedCaptureFails) {
  begin(a);
  order(a, b);
  add(b, [] {});
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  // Both streams are usable again.
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
}

TEST_F(RuntimeTest, BlockingCallsInvalidateACapture) {
  const std::vector<std::pair<std::function<cudaError_t()>, cudaError_t>> forbidden = {
      {[&] { return cudaStreamSynchronize(a); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaStreamQuery(a); }, cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
      {[&] {
         void* more = nullptr;
         return cudaMalloc(&more, 1);
       },
       cudaErrorStreamCaptureUnsupported},
      {[&] { return cudaFree(data); }, cudaErrorStreamCaptureUnsupported},
      {[&] {
         EXPECT_EQ(cudaEventRecord(event, a), cudaSuccess);
         return cudaEventSynchronize(event);
       },
       cudaErrorCapturedEvent},
  };
  for (const auto& [call, wanted] : forbidden) {
    begin(a);
    EXPECT_EQ(call(), wanted);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(RuntimeTest, EventsDoNotCrossTheBoundaryOfACapture) {
  ASSERT_EQ(cudaEventRecord(event, b), cudaSuccess);
  begin(a);
  EXPECT_EQ(cudaStreamWaitEvent(a, event, 0), cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
  begin(a);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(b, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(RuntimeTest, CaptureMustEndOnItsOriginStream) {
  begin(a);
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  order(a, b);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
}

TEST_F(RuntimeTest, PageableMemoryIsNotCaptured) {
  std::vector<char> host(kBytes);
  begin(a);
  EXPECT_EQ(cudaMemcpyAsync(data, host.data(), kBytes, cudaMemcpyDefault, a),
            cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
}

TEST_F(RuntimeTest, RegisteredMemoryIsCapturedUntilItIsPageableAgain) {
  std::vector<char> host(kBytes, 'x');
  ASSERT_EQ(cudaHostRegister(host.data(), kBytes, cudaHostRegisterPortable), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + kBytes - 1, 1, cudaHostRegisterPortable),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaMemcpyAsync(data, host.data() + 1, kBytes, cudaMemcpyDefault, a),
            cudaErrorInvalidValue);
  begin(a);
  EXPECT_EQ(cudaMemcpyAsync(data, host.data(), kBytes, cudaMemcpyDefault, a), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
  begin(a);
  EXPECT_EQ(cudaMemcpyAsync(data, host.data(), kBytes, cudaMemcpyDefault, a),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
}

// --- Memory ---

TEST_F(RuntimeTest, MemoryStartsUninitialized) {
  std::vector<unsigned char> host(kBytes);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), data, kBytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(host, std::vector<unsigned char>(kBytes, 0xFF));
}

TEST_F(RuntimeTest, CopiesFromPageableMemoryReadItBeforeReturning) {
  std::vector<char> from(kBytes, 'x'), to(kBytes);
  ASSERT_EQ(cudaMemcpyAsync(data, from.data(), kBytes, cudaMemcpyDefault, a), cudaSuccess);
  from.assign(kBytes, 'y');
  ASSERT_EQ(cudaMemcpyAsync(to.data(), data, kBytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(to, std::vector<char>(kBytes, 'x'));
}

TEST_F(RuntimeTest, CopiesOfPinnedMemoryReadItWhenTheyRun) {
  char* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kBytes, 0), cudaSuccess);
  std::memset(pinned, 'x', kBytes);
  ASSERT_EQ(cudaMemcpyAsync(data, pinned, kBytes, cudaMemcpyDefault, a), cudaSuccess);
  std::memset(pinned, 'y', kBytes);  // before the copy has run
  std::vector<char> to(kBytes);
  ASSERT_EQ(cudaMemcpyAsync(to.data(), data, kBytes, cudaMemcpyDefault, a), cudaSuccess);
  EXPECT_EQ(to[0], 'y');
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(RuntimeTest, RejectsInvalidMemory) {
  std::vector<char> host(2 * kBytes);
  const auto copy = [&](void* to, size_t bytes) {
    return cudaMemcpyAsync(to, host.data(), bytes, cudaMemcpyDefault, a);
  };
  EXPECT_EQ(copy(data, kBytes), cudaSuccess);
  EXPECT_EQ(copy(data + 1, kBytes), cudaErrorInvalidValue);
  EXPECT_EQ(copy(data - 1, kBytes), cudaErrorInvalidValue);
  EXPECT_EQ(copy(nullptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 1, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(data + kBytes, 0, 1, a), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(data + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(data), cudaErrorInvalidValue);
  void* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 10), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_EQ(copy(freed, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(freed), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&freed, size_t{1} << 40), cudaErrorMemoryAllocation);
}

TEST_F(RuntimeTest, ReportsWritesBeyondTheEnd) {
  ASSERT_EQ(launch("writer", {1, 1}, a, [&] { data[kBytes] = 0; }), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure),
               "writer: a write beyond the end of an allocation of 1000 bytes");
  // Repair the guard, because it would be reported again.
  recover();
  add(a, [&] { data[kBytes] = static_cast<char>(0xFF); });
  cudaStreamSynchronize(a);
}

using RuntimeDeathTest = RuntimeTest;

TEST_F(RuntimeDeathTest, HostCannotAccessDeviceMemory) {
  EXPECT_DEATH(data[0] = 1, "the host accessed .*, which may be device memory");
}

// --- Kernels and handles ---

TEST_F(RuntimeTest, RejectsInvalidGrids) {
  const auto nothing = [] {};
  EXPECT_EQ(launch("k", {1, 1024}, a, nothing), cudaSuccess);
  for (const Shape& shape :
       {Shape{0, 1}, Shape{1, 0}, Shape{1, 1025}, Shape{1, dim3(64, 32)}, Shape{1, dim3(1, 1, 65)},
        Shape{dim3(1, 65536), 1}, Shape{dim3(1, 1, 65536), 1}}) {
    EXPECT_EQ(launch("k", shape, a, nothing), cudaErrorInvalidConfiguration);
  }
  EXPECT_EQ(launch("k", {1, 1, 228 << 10}, a, nothing), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, KernelFailureIsStickyAndStopsLaterWork) {
  ASSERT_EQ(launch("halves", {1, 32}, a,
                   [] {
                     if (threadIdx.x < 16) __syncthreads();
                   }),
            cudaSuccess);
  bool ran = false;
  add(a, [&] { ran = true; });
  EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
  EXPECT_EQ(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find("halves: some threads"),
            0u);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorLaunchFailure);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorLaunchFailure);
  EXPECT_FALSE(ran);
  recover();
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
}

TEST_F(RuntimeTest, RejectsDestroyedHandles) {
  cudaStream_t stream = nullptr;
  cudaEvent_t gone = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, 0, 0), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&gone, 0), cudaSuccess);
  bool ran = false;
  add(stream, [&] { ran = true; });
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(gone), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(gone, a), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamWaitEvent(a, gone, 0), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(gone), cudaErrorInvalidResourceHandle);
  // Work that was queued on the stream is still done.
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(ran);
}

TEST_F(RuntimeTest, OnlyReachedTimedEventsHaveTimes) {
  cudaEvent_t timed = nullptr;
  float milliseconds = 0;
  ASSERT_EQ(cudaEventCreateWithFlags(&timed, cudaEventDefault), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventRecord(timed, a), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(timed), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecordWithFlags(timed, a, cudaEventRecordExternal), cudaErrorInvalidValue);
  // Until a replay reaches the event, it has its previous state.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecordWithFlags(timed, a, cudaEventRecordExternal), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, a), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(timed), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(timed), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(timed), cudaSuccess);
}

}  // namespace
}  // namespace trireme::emulation
