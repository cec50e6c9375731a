#include "core/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace trireme {
namespace {

class DeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Device> device = create_cpu_device(2);
  std::unique_ptr<Stream> compute = device->create_stream(StreamKind::kCompute);
  std::unique_ptr<Stream> background = device->create_stream(StreamKind::kBackground);
  std::unique_ptr<Event> event = device->create_event();
};

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

TEST(Buffer, GivesMemoryBackOnce) {
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

TEST_F(DeviceTest, AllocatesAlignedMemory) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4097}}) {
    const Buffer buffer = device->allocate(bytes);
    EXPECT_EQ(buffer.bytes(), bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  }
}

TEST_F(DeviceTest, CopiesAndClearsInOrder) {
  std::vector<int> from(1000), to(1000, -1);
  std::iota(from.begin(), from.end(), 0);
  const size_t bytes = from.size() * sizeof(int);
  device->copy(to.data(), from.data(), bytes, *background);
  device->fill_zero(from.data(), bytes, *background);
  background->synchronize();
  EXPECT_EQ(to[999], 999);
  EXPECT_EQ(from[999], 0);
}

TEST_F(DeviceTest, ComputeRunsInTheCaller) {
  std::thread::id id;
  auto* where = &id;
  compute->run(Task([where] { *where = std::this_thread::get_id(); }));
  EXPECT_EQ(id, std::this_thread::get_id());
  EXPECT_THROW(compute->run(Task(refuse)), CommError);
}

TEST_F(DeviceTest, BackgroundRunsElsewhereInOrder) {
  // More than the ring holds, so that queueing has to wait, too.
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

TEST_F(DeviceTest, StreamsWaitForEvents) {
  // Each adds to the other's number; any order but the right one gives another result.
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
  int wanted = 1;
  for (int i = 0; i < 1000; ++i) wanted = wanted * 3 % 1000003 + 7;
  EXPECT_EQ(number, wanted);
}

TEST_F(DeviceTest, BackgroundStreamsWaitForEachOther) {
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

TEST_F(DeviceTest, AnEventNeverRecordedIsReached) {
  compute->wait(*event);
  background->wait(*event);
  background->synchronize();
}

TEST_F(DeviceTest, AFailureIsReportedByWhoeverWaits) {
  const auto other = device->create_stream(StreamKind::kBackground);
  int ran = 0;
  auto* count = &ran;
  background->run(Task([count] { ++*count; }));
  background->run(Task(refuse));
  background->run(Task([count] { ++*count; }));
  background->record(*event);
  other->wait(*event);
  other->run(Task([count] { ++*count; }));
  EXPECT_EQ(failure_of([&] { compute->wait(*event); }), "peer 3 is gone");
  EXPECT_EQ(failure_of([&] { background->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(failure_of([&] { other->synchronize(); }), "peer 3 is gone");
  // Still, each time, and nothing behind the failure has run.
  EXPECT_EQ(failure_of([&] { background->synchronize(); }), "peer 3 is gone");
  EXPECT_EQ(ran, 1);
}

TEST_F(DeviceTest, AnEventBeforeTheFailureCarriesNone) {
  background->record(*event);
  background->run(Task(refuse));
  EXPECT_NO_THROW(compute->wait(*event));
  EXPECT_THROW(background->synchronize(), CommError);
}

TEST_F(DeviceTest, AStreamEndsWithItsWorkDone) {
  std::atomic<int> ran = 0;
  auto* count = &ran;
  for (int i = 0; i < 100; ++i) background->run(Task([count] { ++*count; }));
  background.reset();
  EXPECT_EQ(ran, 100);
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
