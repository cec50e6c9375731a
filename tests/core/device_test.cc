#include "core/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace trireme {
namespace {

class DeviceTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceKind::kCuda) {
      if (query_cuda().devices == 0) GTEST_SKIP() << query_cuda().problem;
      device = create_cuda_device(0);
    } else {
      device = create_cpu_device(2);
    }
    compute = device->create_stream(StreamKind::kCompute);
    background = device->create_stream(StreamKind::kBackground);
    event = device->create_event();
  }

  // Returns device memory that holds `values`.
  Buffer upload(const std::vector<int>& values) {
    Buffer buffer = device->allocate(values.size() * sizeof(int));
    device->copy(buffer.data(), values.data(), buffer.bytes(), *compute);
    compute->synchronize();
    return buffer;
  }
  std::vector<int> download(const Buffer& buffer) {
    std::vector<int> values(buffer.bytes() / sizeof(int));
    device->copy(values.data(), buffer.data(), buffer.bytes(), *compute);
    compute->synchronize();
    return values;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> compute;
  std::unique_ptr<Stream> background;
  std::unique_ptr<Event> event;
};

std::string kind_name(const testing::TestParamInfo<DeviceKind>& info) {
  return info.param == DeviceKind::kCpu ? "Cpu" : "Cuda";
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, testing::Values(DeviceKind::kCpu, DeviceKind::kCuda),
                         kind_name);

// Behavior specific to the CPU.
using CpuDeviceTest = DeviceTest;
INSTANTIATE_TEST_SUITE_P(Devices, CpuDeviceTest, testing::Values(DeviceKind::kCpu), kind_name);

void refuse() { throw CommError("peer 3 is gone"); }

template <class Work>
std::string failure_of(Work work) {
  try {
    work();
  } catch (const CommError& error) {
    return error.what();
  }
  return "";
}

TEST(Buffer, ReleasesMemoryOnce) {
  int released = 0;
  int memory = 0;
  {
    Buffer first(&memory, sizeof(memory), [&](void* data) {
      EXPECT_EQ(data, &memory);
      ++released;
    });
    Buffer second(std::move(first));
    EXPECT_EQ(second.as<int>(), &memory);
    EXPECT_EQ(second.bytes(), sizeof(memory));
    Buffer third;
    third = std::move(second);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST_P(DeviceTest, AllocatesAlignedMemory) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4097}}) {
    const Buffer buffer = device->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  }
}

TEST_P(DeviceTest, CopiesAndClearsInOrder) {
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Buffer from = upload(numbers), to = upload(std::vector<int>(1000, -1));
  device->copy(to.data(), from.data(), from.bytes(), *background);
  device->fill_zero(from.data(), from.bytes() / 2, *background);
  background->synchronize();
  EXPECT_EQ(download(to), numbers);
  std::fill_n(numbers.begin(), 500, 0);
  EXPECT_EQ(download(from), numbers);
}

TEST_P(DeviceTest, CopiesFromAndToItsHostMemory) {
  const Buffer from = device->allocate_host(1000 * sizeof(int));
  const Buffer to = device->allocate_host(1000 * sizeof(int));
  const Buffer there = device->allocate(1000 * sizeof(int));
  std::iota(from.as<int>(), from.as<int>() + 1000, 7);
  device->copy(there.data(), from.data(), from.bytes(), *background);
  device->copy(to.data(), there.data(), to.bytes(), *background);
  background->record(*event);
  event->synchronize();
  EXPECT_TRUE(std::equal(to.as<int>(), to.as<int>() + 1000, from.as<int>()));
}

TEST_P(DeviceTest, CopiesNothing) {
  device->copy(nullptr, nullptr, 0, *compute);
  device->fill_zero(nullptr, 0, *compute);
  compute->synchronize();
}

TEST_P(DeviceTest, MeasuresTimeBetweenEvents) {
  const auto begin = device->create_event(EventKind::kTimed);
  const auto end = device->create_event(EventKind::kTimed);
  background->record(*begin);
  background->run(Task([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
  background->record(*end);
  end->synchronize();
  EXPECT_GE(device->seconds_between(*begin, *end), 0.019);
  EXPECT_LT(device->seconds_between(*begin, *end), 10);
}

TEST_P(DeviceTest, DescribesItself) {
  EXPECT_EQ(device->kind(), GetParam());
  EXPECT_EQ(compute->device(), GetParam());
  EXPECT_FALSE(device->description().empty());
}

TEST_P(CpuDeviceTest, ComputeRunsInTheCaller) {
  std::thread::id id;
  auto* where = &id;
  compute->run(Task([where] { *where = std::this_thread::get_id(); }));
  EXPECT_EQ(id, std::this_thread::get_id());
  EXPECT_THROW(compute->run(Task(refuse)), CommError);
}

// Otherwise steps become slower as averages of gradients decay.
TEST_P(CpuDeviceTest, SubnormalNumbersAreZero) {
#ifndef __x86_64__
  GTEST_SKIP() << "other processors compute with them at full speed";
#endif
  const auto sums_on = [](Stream& stream) {
    const volatile float subnormal = 1e-39F;
    std::vector<float> sums(4, 1);
    stream.run(Task([&sums, &subnormal] {
      parallel_for(std::ssize(sums), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sums[i] = subnormal + subnormal;
      });
    }));
    stream.synchronize();
    return sums;
  };
  const std::vector<float> zeros(4);
  EXPECT_EQ(sums_on(*compute), zeros);
  EXPECT_EQ(sums_on(*background), zeros);
}

TEST_P(DeviceTest, BackgroundRunsElsewhereInOrder) {
  // More than the capacity of the ring, so that queueing has to wait, too.
  constexpr int kTasks = 5000;
  std::vector<int> order;
  order.reserve(kTasks);
  std::thread::id id;
  auto* out = &order;
  auto* where = &id;
  for (int i = 0; i < kTasks; ++i) {
    background->run(Task([out, where, i] {
      out->push_back(i);
      *where = std::this_thread::get_id();
    }));
  }
  background->synchronize();
  std::vector<int> wanted(kTasks);
  std::iota(wanted.begin(), wanted.end(), 0);
  EXPECT_EQ(order, wanted);
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST_P(DeviceTest, StreamsWaitForEvents) {
  // Any order other than the correct one gives a different result.
  const auto back = device->create_event();
  int number = 1;
  auto* n = &number;
  for (int i = 0; i < 1000; ++i) {
    compute->run(Task([n] { *n = (*n * 3) % 1000003; }));
    compute->record(*event);
    background->wait(*event);
    background->run(Task([n] { *n += 7; }));
    background->record(*back);
    compute->wait(*back);
  }
  compute->synchronize();
  int wanted = 1;
  for (int i = 0; i < 1000; ++i) wanted = wanted * 3 % 1000003 + 7;
  EXPECT_EQ(number, wanted);
}

TEST_P(DeviceTest, BackgroundStreamsWaitForEachOther) {
  const auto other = device->create_stream(StreamKind::kBackground);
  std::atomic<bool> open = false;
  int seen = 0;
  auto* gate = &open;
  auto* out = &seen;
  background->run(Task([gate] {
    while (!*gate) std::this_thread::yield();
  }));
  background->run(Task([out] { *out = 1; }));
  background->record(*event);
  other->wait(*event);
  other->run(Task([out] { *out = *out == 1 ? 2 : -1; }));
  open = true;
  other->synchronize();
  EXPECT_EQ(seen, 2);
}

TEST_P(DeviceTest, EventThatWasNeverRecordedIsReached) {
  compute->wait(*event);
  background->wait(*event);
  event->synchronize();
  compute->synchronize();
  background->synchronize();
}

TEST_P(DeviceTest, EveryWaitReportsAFailure) {
  const auto other = device->create_stream(StreamKind::kBackground);
  int ran = 0;
  auto* count = &ran;
  background->run(Task([count] { ++*count; }));
  background->run(Task(refuse));
  background->run(Task([count] { ++*count; }));
  background->record(*event);
  other->wait(*event);
  other->run(Task([count] { ++*count; }));
  // A stream that runs inline throws immediately, other streams when they are waited for.
  const auto wait = [&] {
    compute->wait(*event);
    compute->synchronize();
  };
  EXPECT_EQ(failure_of(wait), "peer 3 is gone");
  EXPECT_EQ(failure_of([&] { event->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(failure_of([&] { background->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(failure_of([&] { other->synchronize(); }), "peer 3 is gone");
  // Repeated waits report it again, and nothing after the failure has run.
  EXPECT_EQ(failure_of([&] { background->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(ran, 1);
}

TEST_P(DeviceTest, EventBeforeAFailureDoesNotReportIt) {
  background->record(*event);
  background->run(Task(refuse));
  EXPECT_NO_THROW(compute->wait(*event));
  EXPECT_NO_THROW(event->synchronize());
  EXPECT_THROW(background->synchronize(), CommError);
}

TEST_P(DeviceTest, DestroyingAStreamFinishesItsWork) {
  std::atomic<int> ran = 0;
  auto* count = &ran;
  for (int i = 0; i < 100; ++i) background->run(Task([count] { ++*count; }));
  background.reset();
  EXPECT_EQ(ran, 100);
}

// Behavior specific to CUDA.
class CudaDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    in = device->allocate_host(kCount * sizeof(int));
    out = device->allocate_host(kCount * sizeof(int));
    a = device->allocate(in.bytes());
    b = device->allocate(in.bytes());
    device->fill_zero(a.data(), a.bytes(), *compute);
    device->fill_zero(b.data(), b.bytes(), *compute);
    compute->synchronize();
    std::fill_n(out.as<int>(), kCount, -1);
  }

  // Copies `in` to `out` through both streams and clears the second half.
  void encode_detour() {
    device->copy(a.data(), in.data(), in.bytes(), *compute);
    compute->record(*event);
    background->wait(*event);
    device->copy(b.data(), a.data(), a.bytes(), *background);
    device->fill_zero(in_half(b), b.bytes() / 2, *background);
    background->record(*back);
    compute->wait(*back);
    device->copy(out.data(), b.data(), b.bytes(), *compute);
  }
  static std::byte* in_half(const Buffer& buffer) { return buffer.data() + buffer.bytes() / 2; }
  void expect_detour() {
    compute->synchronize();
    for (int i = 0; i < kCount; ++i) {
      ASSERT_EQ(out.as<int>()[i], i < kCount / 2 ? in.as<int>()[i] : 0) << i;
    }
  }

  static constexpr int kCount = 1000;
  Buffer in, out, a, b;
  std::unique_ptr<Event> back;
};

INSTANTIATE_TEST_SUITE_P(Devices, CudaDeviceTest, testing::Values(DeviceKind::kCuda), kind_name);

TEST_P(CudaDeviceTest, ReplayDoesTheRecordedWork) {
  back = device->create_event();
  std::iota(in.as<int>(), in.as<int>() + kCount, 1);
  encode_detour();
  expect_detour();

  std::fill_n(out.as<int>(), kCount, -1);
  const auto recording = device->record(*compute, [&] { encode_detour(); });
  compute->synchronize();
  background->synchronize();
  EXPECT_EQ(out.as<int>()[0], -1) << "ran while it was being recorded";
  for (int replay = 2; replay < 5; ++replay) {
    std::iota(in.as<int>(), in.as<int>() + kCount, replay);
    recording->replay(*compute);
    expect_detour();
  }
  // On another stream than the recorded one; afterwards the streams work as before.
  std::iota(in.as<int>(), in.as<int>() + kCount, 100);
  recording->replay(*background);
  background->synchronize();
  expect_detour();
  encode_detour();
  expect_detour();
}

TEST_P(CudaDeviceTest, ReplaysRunInStreamOrder) {
  const auto recording = device->record(*compute, [&] {
    device->copy(a.data(), in.data(), in.bytes(), *compute);
    device->copy(out.data(), a.data(), a.bytes(), *compute);
  });
  int* from = in.as<int>();
  std::fill_n(from, kCount, 0);
  for (int i = 1; i <= 100; ++i) {
    compute->run(Task([from] { ++*from; }));
    recording->replay(*compute);
  }
  compute->synchronize();
  EXPECT_EQ(out.as<int>()[0], 100);
}

TEST_P(CudaDeviceTest, TimedEventsWorkWithinRecordings) {
  const auto begin = device->create_event(EventKind::kTimed);
  const auto end = device->create_event(EventKind::kTimed);
  const auto recording = device->record(*compute, [&] {
    compute->record(*begin);
    compute->run(Task([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
    compute->record(*end);
  });
  for (int replay = 0; replay < 2; ++replay) {
    recording->replay(*compute);
    compute->synchronize();  // waiting for `end` could return before the replay has reached it
    EXPECT_GE(device->seconds_between(*begin, *end), 0.019);
  }
}

TEST_P(CudaDeviceTest, RecordedTasksRunInEveryReplay) {
  int runs = 0, seen = 0;
  auto *count = &runs, *latest = &seen;
  const auto recording = device->record(*compute, [&] {
    compute->run(Task([count] { ++*count; }));
    compute->run(Task([latest, own = 0]() mutable { *latest = ++own; }));
  });
  EXPECT_EQ(runs, 0);
  for (int replay = 0; replay < 3; ++replay) recording->replay(*compute);
  compute->synchronize();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(seen, 1) << "each replay must start from the recorded state";
}

TEST_P(CudaDeviceTest, DestroyingARecordingWaitsForItsTasks) {
  int runs = 0;
  auto* count = &runs;
  auto recording = device->record(*compute, [&] { compute->run(Task([count] { ++*count; })); });
  recording->replay(*compute);
  recording.reset();
  EXPECT_EQ(runs, 1);
}

TEST_P(CudaDeviceTest, ReportsFailuresWithinARecording) {
  bool failing = false;
  auto* fails = &failing;
  int runs = 0;
  auto* count = &runs;
  const auto recording = device->record(*compute, [&] {
    compute->run(Task([fails] {
      if (*fails) refuse();
    }));
    compute->run(Task([count] { ++*count; }));
  });
  recording->replay(*compute);
  compute->record(*event);
  compute->synchronize();
  failing = true;
  recording->replay(*compute);
  EXPECT_EQ(failure_of([&] { compute->synchronize(); }), "peer 3 is gone");
  recording->replay(*compute);
  compute->record(*event);
  EXPECT_EQ(failure_of([&] { event->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(runs, 1);
}

TEST_P(CudaDeviceTest, ExceptionEndsTheRecording) {
  std::iota(in.as<int>(), in.as<int>() + kCount, 1);
  back = device->create_event();
  EXPECT_THROW(device->record(*compute,
                              [&] {
                                device->fill_zero(a.data(), a.bytes(), *compute);
                                compute->record(*event);
                                background->wait(*event);
                                refuse();
                              }),
               CommError);
  encode_detour();
  expect_detour();
}

std::string device_error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST_P(CudaDeviceTest, RejectsCallsThatCannotBeRecorded) {
  const auto synchronize = [&] { compute->synchronize(); };
  EXPECT_NE(device_error_of([&] { device->record(*compute, synchronize); }).find("Capture"),
            std::string::npos);
  const auto fork_without_join = [&] {
    compute->record(*event);
    background->wait(*event);
    device->fill_zero(a.data(), a.bytes(), *background);
  };
  EXPECT_NE(device_error_of([&] { device->record(*compute, fork_without_join); }).find("Unjoined"),
            std::string::npos);
  EXPECT_THROW(device->record(*compute, [&] { device->record(*compute, [] {}); }), Error);
  compute->synchronize();
  background->synchronize();
}

TEST_P(CudaDeviceTest, OtherThreadsUseTheDeviceDuringARecording) {
  const auto recording = device->record(*compute, [&] {
    device->fill_zero(a.data(), a.bytes(), *compute);
    std::thread([&] {
      const Buffer more = device->allocate(100);
      device->fill_zero(more.data(), more.bytes(), *background);
      background->synchronize();
    }).join();
  });
  recording->replay(*compute);
  compute->synchronize();
}

TEST_P(CudaDeviceTest, OutOfMemoryErrorNamesTheSize) {
  const std::string message = device_error_of([&] { device->allocate(size_t{1} << 50); });
  EXPECT_NE(message.find("no memory for 1125899906842624 bytes"), std::string::npos) << message;
  device->allocate(1000);
}

TEST(Cuda, ReportsDevicesAndVersions) {
  const CudaSupport support = query_cuda();
  EXPECT_EQ(support.devices == 0, !support.problem.empty());
  EXPECT_EQ(support.ids.size(), static_cast<size_t>(support.devices));
  EXPECT_EQ(support.versions.find("runtime "), support.built ? 0 : std::string::npos);
  EXPECT_THROW(create_cuda_device(support.devices), DeviceError);
  EXPECT_THROW(create_cuda_device(-1), DeviceError);
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  const auto device = create_cpu_device(3);
  for (int64_t count : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
    parallel_for(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    for (const auto& visit : visits) EXPECT_EQ(visit, 1);
  }
}

TEST(ParallelFor, NestsWithoutMoreThreads) {
  const auto device = create_cpu_device(2);
  std::atomic<int> total = 0;
  parallel_for(4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto thread = std::this_thread::get_id();
      parallel_for(10, [&](int64_t first, int64_t last) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        total += static_cast<int>(last - first);
      });
    }
  });
  EXPECT_EQ(total, 40);
}

}  // namespace
}  // namespace trireme
