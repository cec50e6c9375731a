#include "comm/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "comm/mpi/half.h"
#include "core/random.h"
#include "tests/comm/ranks.h"

namespace trireme::comm {
namespace {

using test::Rank;
using test::Setup;
using test::Way;

class CommunicatorTest : public testing::TestWithParam<test::Setup> {
 protected:
  test::Rank self_{GetParam()};
  Device& device_ = *self_.device;
  Stream& stream_ = *self_.stream;
  Communicator& communicator_ = *self_.communicator;
  int rank_ = communicator_.rank();
  int ranks_ = communicator_.size();
};

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  return DType::kI64;
}

// Values whose floating-point sum depends on the order.
template <class T>
T value(int rank, int64_t i) {
  const auto bits =
      static_cast<uint32_t>(mix64(static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(rank)));
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(bits) - (1 << 30);
  } else {
    return static_cast<T>(uniform(bits) - 0.5f) * static_cast<T>(1 << (i % 9));
  }
}

template <class T>
std::vector<T> values_of(int rank, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value<T>(rank, i);
  return values;
}

enum class Order { kByRank, kAny };

// Compares a sum with one in the order of the ranks. On one host, sums of allocated memory through
// host memory have exactly this order; MPI, NCCL and several hosts choose their own.
template <class T>
void expect_is_sum(const std::vector<T>& sum, int ranks, Order order) {
  for (size_t i = 0; i < sum.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    T expected = value<T>(0, element);
    T scale = std::abs(expected);
    for (int rank = 1; rank < ranks; ++rank) {
      expected += value<T>(rank, element);
      scale += std::abs(value<T>(rank, element));
    }
    if (order == Order::kByRank || std::is_integral_v<T>) {
      ASSERT_EQ(sum[i], expected) << "element " << i << " of " << sum.size();
    } else {
      const double tolerance =
          4 * static_cast<double>(scale) * static_cast<double>(std::numeric_limits<T>::epsilon());
      ASSERT_NEAR(static_cast<double>(sum[i]), static_cast<double>(expected), tolerance)
          << "element " << i << " of " << sum.size();
    }
  }
}

template <class T>
void expect_same_bits_on_all_ranks(test::Rank& self, const std::vector<T>& own) {
  const size_t bytes = own.size() * sizeof(T);
  const Buffer in = self.copy_of(own);
  const Buffer out = self.device->allocate(bytes * static_cast<size_t>(self.communicator->size()));
  self.communicator->all_gather(in.data(), out.data(), static_cast<int64_t>(bytes), DType::kU8,
                                *self.stream);
  const auto all = self.read<std::byte>(out.data(), static_cast<int64_t>(out.bytes()));
  for (int rank = 0; rank < self.communicator->size(); ++rank) {
    ASSERT_EQ(0, std::memcmp(all.data() + static_cast<size_t>(rank) * bytes, own.data(), bytes))
        << "rank " << rank << " has different bits";
  }
}

// Sums `count` elements at `data`, memory of the communicator's device, and checks the result.
template <class T>
void expect_sum(test::Rank& self, Communicator& communicator, T* data, int64_t count, Order order) {
  self.write(data, values_of<T>(communicator.rank(), count));
  communicator.all_reduce_sum(data, count, dtype_of<T>(), *self.stream);
  expect_is_sum(self.read<T>(data, count), communicator.size(), order);
}

TEST_P(CommunicatorTest, ReportsThePlacementOfItsRanks) {
  const Placement& placement = communicator_.placement();
  EXPECT_EQ(placement.rank, test::own_rank());
  EXPECT_EQ(placement.ranks, test::started_ranks());
  const test::Hosts hosts = GetParam().hosts;
  std::vector<int> lowest;  // rank of each host, in the order of hosts
  int local_ranks = 0;
  int local_rank = 0;
  const int own_host = test::host_of(hosts, rank_, ranks_);
  int host = -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int its_host = test::host_of(hosts, rank, ranks_);
    const bool first = std::ranges::none_of(
        lowest, [&](int other) { return test::host_of(hosts, other, ranks_) == its_host; });
    if (first) lowest.push_back(rank);
    if (its_host != own_host) continue;
    if (first) host = static_cast<int>(lowest.size()) - 1;
    if (rank < rank_) ++local_rank;
    ++local_ranks;
  }
  EXPECT_EQ(placement.local_rank, local_rank);
  EXPECT_EQ(placement.local_ranks, local_ranks);
  EXPECT_EQ(placement.host, host);
  EXPECT_EQ(placement.hosts, static_cast<int>(lowest.size()));
  EXPECT_FALSE(placement.host_name.empty());
}

TEST_P(CommunicatorTest, NamesItsTransport) {
  const std::string transport = communicator_.transport();
  const bool staged =
      GetParam().way == test::Way::kStagedOnCpu || GetParam().way == test::Way::kStagedOnGpu;
  EXPECT_TRUE(transport.starts_with(GetParam().way == test::Way::kNccl ? "NCCL " : "MPI"))
      << transport;
  EXPECT_EQ(transport.ends_with("through host memory"), staged && ranks_ > 1) << transport;
  EXPECT_EQ(communicator_.failure(), "");
}

TEST_P(CommunicatorTest, AllocatesZeroedAlignedMemory) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{1000003}}) {
    const Buffer first = communicator_.allocate(bytes);
    const Buffer second = communicator_.allocate(bytes);
    const auto holds = [&](const Buffer& buffer, int content) {
      const auto all = self_.read<uint8_t>(buffer.data(), static_cast<int64_t>(bytes));
      return std::ranges::all_of(all, [&](uint8_t each) { return each == content; });
    };
    for (const Buffer* buffer : {&first, &second}) {
      EXPECT_EQ(buffer->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
      EXPECT_TRUE(holds(*buffer, 0));
      self_.write(buffer->data(), std::vector(bytes, static_cast<uint8_t>(rank_ + 1)));
    }
    communicator_.barrier(stream_);
    for (const Buffer* buffer : {&first, &second}) EXPECT_TRUE(holds(*buffer, rank_ + 1));
  }
}

template <class T>
void sum_everywhere(test::Rank& self) {
  constexpr T kGuard = 77;
  constexpr int64_t kMax = 70'000;
  constexpr size_t kBytes = (kMax + 64) * sizeof(T);
  Communicator& communicator = *self.communicator;
  const bool ordered =
      communicator.placement().hosts == 1 && communicator.transport().starts_with("MPI");
  const Buffer allocated = communicator.allocate(kBytes);
  const Buffer plain = self.device->allocate(kBytes);
  for (const Buffer* buffer : {&allocated, &plain}) {
    const Order order = ordered && buffer == &allocated ? Order::kByRank : Order::kAny;
    for (const int64_t count : {1, 2, 7, 16, 33, 1001, 8191, 8193, 16384, 16385, 20011, 70'000}) {
      for (const int64_t offset : {1, 16, 37}) {
        SCOPED_TRACE(testing::Message() << (buffer == &allocated ? "allocated" : "plain")
                                        << " memory, " << count << " elements at " << offset);
        std::vector<T> values = values_of<T>(communicator.rank(), count);
        values.insert(values.begin(), kGuard);
        values.push_back(kGuard);
        T* data = buffer->as<T>() + offset;
        self.write(data - 1, values);
        communicator.all_reduce_sum(data, count, dtype_of<T>(), *self.stream);
        values = self.read<T>(data - 1, count + 2);
        ASSERT_EQ(values.front(), kGuard);
        ASSERT_EQ(values.back(), kGuard);
        const std::vector<T> sum(values.begin() + 1, values.end() - 1);
        ASSERT_NO_FATAL_FAILURE(expect_is_sum(sum, communicator.size(), order));
        ASSERT_NO_FATAL_FAILURE(expect_same_bits_on_all_ranks(self, sum));
      }
    }
  }
}

TEST_P(CommunicatorTest, SumsF32) { sum_everywhere<float>(self_); }
TEST_P(CommunicatorTest, SumsF64) { sum_everywhere<double>(self_); }
TEST_P(CommunicatorTest, SumsI64) { sum_everywhere<int64_t>(self_); }

// Sums numbers that are small enough for the sums to be exact.
template <class Half>
void sum_half(test::Rank& self, DType dtype) {
  const int ranks = self.communicator->size();
  for (const int64_t count : {3, 1001, 50'000}) {
    const Buffer memory = self.communicator->allocate(bytes_of(count, dtype));
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>((i % 16 - 8) * (self.communicator->rank() + 1));
      values.push_back(mpi::from_accumulator<Half>(x).bits);
    }
    self.write(memory.data(), values);
    self.communicator->all_reduce_sum(memory.data(), count, dtype, *self.stream);
    values = self.read<uint16_t>(memory.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      const auto expected = static_cast<float>((i % 16 - 8) * ranks * (ranks + 1) / 2);
      ASSERT_EQ(mpi::to_accumulator(Half{values[static_cast<size_t>(i)]}), expected)
          << "element " << i << " of " << count;
    }
  }
}

TEST_P(CommunicatorTest, SumsF16) { sum_half<mpi::F16>(self_, DType::kF16); }
TEST_P(CommunicatorTest, SumsBF16) { sum_half<mpi::BF16>(self_, DType::kBF16); }

TEST_P(CommunicatorTest, SumsALargeBuffer) {
  const int64_t count = (5 << 20) / 4 + 3;
  const Buffer allocated = communicator_.allocate(bytes_of(count, DType::kF32));
  expect_sum(self_, communicator_, allocated.as<float>(), count, Order::kAny);
  const Buffer plain = device_.allocate(bytes_of(count, DType::kF32));
  expect_sum(self_, communicator_, plain.as<float>(), count, Order::kAny);
}

TEST_P(CommunicatorTest, SumsNothing) {
  communicator_.all_reduce_sum(nullptr, 0, DType::kF32, stream_);
}

TEST_P(CommunicatorTest, RefusesDtypesThatCannotBeSummed) {
  for (DType dtype : {DType::kI32, DType::kU8}) {
    EXPECT_THROW(communicator_.all_reduce_sum(nullptr, 1, dtype, stream_), CommError);
    EXPECT_THROW(communicator_.reduce_scatter_sum(nullptr, nullptr, 1, dtype, stream_), CommError);
  }
}

void expect_scattered_sum(test::Rank& self, const Buffer& in, void* out, int64_t count) {
  const int own = self.communicator->rank(), ranks = self.communicator->size();
  self.write(in.as<int64_t>(), values_of<int64_t>(own, count * ranks));
  self.communicator->reduce_scatter_sum(in.data(), out, count, DType::kI64, *self.stream);
  const auto sum = self.read<int64_t>(out, count);
  for (int64_t i = 0; i < count; ++i) {
    int64_t expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += value<int64_t>(rank, own * count + i);
    ASSERT_EQ(sum[static_cast<size_t>(i)], expected) << i << " of " << count;
  }
}

TEST_P(CommunicatorTest, ReduceScatters) {
  for (const int64_t count : {1, 5, 1001, 300'007}) {
    const size_t bytes = bytes_of(count * ranks_, DType::kI64);
    const Buffer plain = device_.allocate(bytes), allocated = communicator_.allocate(bytes);
    const Buffer apart = device_.allocate(bytes_of(count, DType::kI64));
    for (const Buffer* in : {&plain, &allocated}) {
      expect_scattered_sum(self_, *in, apart.data(), count);
      expect_scattered_sum(self_, *in, in->as<int64_t>() + rank_ * count, count);
    }
  }
}

// ZeRO on one host relies on it to be bitwise plain data parallelism.
TEST_P(CommunicatorTest, ReduceScatterInAllocatedMemorySumsLikeAllReduce) {
  const int64_t count = 1001;
  const Buffer reduced = communicator_.allocate(bytes_of(count * ranks_, DType::kF32));
  expect_sum(self_, communicator_, reduced.as<float>(), count * ranks_, Order::kAny);
  const Buffer scattered = communicator_.allocate(reduced.bytes());
  self_.write(scattered.as<float>(), values_of<float>(rank_, count * ranks_));
  const float* part = scattered.as<float>() + rank_ * count;
  communicator_.reduce_scatter_sum(scattered.data(), scattered.as<float>() + rank_ * count, count,
                                   DType::kF32, stream_);
  const auto sum = self_.read<float>(part, count);
  const auto expected = self_.read<float>(reduced.as<float>() + rank_ * count, count);
  const Placement& placement = communicator_.placement();
  if (placement.hosts > 1 || device_.kind() != DeviceKind::kCpu) return;
  EXPECT_EQ(sum, expected);
}

TEST_P(CommunicatorTest, AllGathers) {
  for (const int64_t count : {11, 300'007}) {
    std::vector<double> expected;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto its = values_of<double>(rank, count);
      expected.insert(expected.end(), its.begin(), its.end());
    }
    const Buffer own = self_.copy_of(values_of<double>(rank_, count));
    const Buffer apart = device_.allocate(expected.size() * sizeof(double));
    communicator_.all_gather(own.data(), apart.data(), count, DType::kF64, stream_);
    ASSERT_EQ(self_.read<double>(apart.data(), count * ranks_), expected);

    const Buffer plain = device_.allocate(apart.bytes());
    const Buffer allocated = communicator_.allocate(apart.bytes());
    for (const Buffer* in_place : {&plain, &allocated}) {
      double* part = in_place->as<double>() + rank_ * count;
      self_.write(part, values_of<double>(rank_, count));
      communicator_.all_gather(part, in_place->data(), count, DType::kF64, stream_);
      ASSERT_EQ(self_.read<double>(in_place->data(), count * ranks_), expected);
    }
  }
}

TEST_P(CommunicatorTest, BroadcastsFromEveryRank) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32,
                            DType::kI64, DType::kU8}) {
    for (int root = 0; root < ranks_; ++root) {
      for (const int64_t count : {1000 + root, 5 << 20}) {
        if (count > 10'000 && dtype != DType::kU8) continue;
        const auto bytes = static_cast<int64_t>(bytes_of(count, dtype));
        const Buffer data =
            self_.copy_of(std::vector(static_cast<size_t>(bytes), static_cast<uint8_t>(rank_ + 1)));
        communicator_.broadcast(data.data(), count, dtype, root, stream_);
        EXPECT_TRUE(std::ranges::all_of(self_.read<uint8_t>(data.data(), bytes),
                                        [&](uint8_t each) { return each == root + 1; }));
      }
    }
  }
}

TEST_P(CommunicatorTest, RefusesARankThatDoesNotExist) {
  const Buffer data = self_.copy_of(std::vector<float>{0});
  try {
    communicator_.broadcast(data.data(), 1, DType::kF32, ranks_, stream_);
    stream_.synchronize();
    FAIL() << "broadcast from rank " << ranks_;
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(ranks_)), std::string::npos)
        << error.what();
  }
}

TEST_P(CommunicatorTest, SendsAroundTheRing) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has no peer";
  for (const int64_t count : {1, 700'003}) {
    const Buffer data = self_.copy_of(std::vector<int64_t>(static_cast<size_t>(count), 1));
    const auto triple = [&] {
      auto values = self_.read<int64_t>(data.data(), count);
      for (int64_t& each : values) each *= 3;
      self_.write(data.data(), values);
    };
    if (rank_ > 0) communicator_.recv(data.data(), count, DType::kI64, rank_ - 1, stream_);
    triple();
    communicator_.send(data.data(), count, DType::kI64, (rank_ + 1) % ranks_, stream_);
    if (rank_ > 0) continue;
    communicator_.recv(data.data(), count, DType::kI64, ranks_ - 1, stream_);
    const auto expected = static_cast<int64_t>(std::pow(3, ranks_));
    EXPECT_TRUE(std::ranges::all_of(self_.read<int64_t>(data.data(), count),
                                    [&](int64_t each) { return each == expected; }));
  }
  stream_.synchronize();
}

TEST_P(CommunicatorTest, ReceivingAnotherCountFails) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has no peer";
  if (GetParam().way == test::Way::kNccl)
    GTEST_SKIP() << "NCCL does not compare what its ranks call";
  const Buffer data = self_.copy_of(std::vector<double>(4));
  if (rank_ == 0) communicator_.send(data.data(), 2, DType::kF64, 1, stream_);
  const auto receive = [&] {
    communicator_.recv(data.data(), 4, DType::kF64, 0, stream_);
    stream_.synchronize();
  };
  if (rank_ == 1) {
    EXPECT_THROW(receive(), CommError);
  }
}

TEST_P(CommunicatorTest, Splits) {
  // Separates odd and even ranks, each in descending order.
  const auto part = communicator_.split(rank_ % 2, ranks_ - rank_);
  std::vector<int> members;
  for (int rank = ranks_ - 1; rank >= 0; --rank) {
    if (rank % 2 == rank_ % 2) members.push_back(rank);
  }
  ASSERT_EQ(part->size(), static_cast<int>(members.size()));
  ASSERT_EQ(members[static_cast<size_t>(part->rank())], rank_);
  EXPECT_EQ(part->placement().group.ranks, members);
  EXPECT_NE(part->placement().group.id, communicator_.placement().group.id);
  const Buffer allocated = part->allocate(100'000 * sizeof(float));
  expect_sum(self_, *part, allocated.as<float>(), 100'000, Order::kAny);
  expect_sum(self_, *part, allocated.as<float>(), 100, Order::kAny);
  const Buffer rank = self_.copy_of(std::vector<int64_t>{rank_});
  part->all_reduce_sum(rank.data(), 1, DType::kI64, stream_);
  EXPECT_EQ(self_.read<int64_t>(rank.data(), 1)[0],
            std::accumulate(members.begin(), members.end(), 0));
  // The parent still works.
  expect_sum(self_, communicator_, allocated.as<float>(), 1000, Order::kAny);
}

TEST_P(CommunicatorTest, RefusesANegativeColor) {
  EXPECT_THROW(communicator_.split(-1, 0), CommError);
}

// Runs a mixture of small and large sums and barriers, to which ranks arrive at random times.
void many_sums(test::Rank& self, Communicator& communicator, Stream& stream, uint64_t salt,
               int rounds) {
  constexpr int64_t kMax = 40'000;
  const Buffer allocated = communicator.allocate(kMax * sizeof(float));
  const Buffer plain = self.device->allocate(kMax * sizeof(float));
  const Buffer host = self.device->allocate_host(kMax * sizeof(float));
  std::mt19937 common(static_cast<uint32_t>(salt));
  std::mt19937 own(static_cast<uint32_t>(salt * 31) + static_cast<uint32_t>(communicator.rank()));
  for (int round = 0; round < rounds; ++round) {
    const int64_t count = common() % 3 ? common() % 300 + 1 : common() % kMax + 1;
    float* data = common() % 2 ? allocated.as<float>() : plain.as<float>();
    data += common() % static_cast<uint32_t>(kMax - count + 1);
    if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    float* values = host.as<float>();
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(communicator.rank() + 1 + round + i % 100);
    }
    const size_t bytes = bytes_of(count, DType::kF32);
    self.device->copy(data, values, bytes, stream);
    communicator.all_reduce_sum(data, count, DType::kF32, stream);
    if (common() % 8 == 0) communicator.barrier(stream);
    self.device->copy(values, data, bytes, stream);
    stream.synchronize();
    const int ranks = communicator.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto expected = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * (round + i % 100));
      ASSERT_EQ(values[i], expected) << "round " << round << ", element " << i;
    }
  }
}

TEST_P(CommunicatorTest, SumsUnderAnyTiming) { many_sums(self_, communicator_, stream_, 1, 500); }

TEST_P(CommunicatorTest, TwoAtOnceOnTwoStreams) {
  if (!communicator_.concurrent())
    GTEST_SKIP() << "concurrent() is false: operations of two streams would wait for each other";
  constexpr int64_t kCount = 20'000;
  const auto other = communicator_.split(0, rank_);
  const auto background = device_.create_stream(StreamKind::kBackground);
  const Buffer here = communicator_.allocate(bytes_of(kCount, DType::kI64));
  const Buffer there = other->allocate(bytes_of(kCount, DType::kI64));
  for (int64_t round = 1; round < 30; ++round) {
    const std::vector<int64_t> values(kCount, round * (rank_ + 1));
    self_.write(here.data(), values);
    self_.write(there.data(), values);
    other->all_reduce_sum(there.data(), kCount, DType::kI64, *background);
    communicator_.all_reduce_sum(here.data(), kCount, DType::kI64, stream_);
    background->synchronize();
    const std::vector<int64_t> expected(kCount, round * ranks_ * (ranks_ + 1) / 2);
    ASSERT_EQ(self_.read<int64_t>(here.data(), kCount), expected);
    ASSERT_EQ(self_.read<int64_t>(there.data(), kCount), expected);
  }
}

TEST_P(CommunicatorTest, TwoAtOnceOnTwoThreads) {
  if (!communicator_.concurrent())
    GTEST_SKIP() << "concurrent() is false: operations of two streams would wait for each other";
  if (GetParam().way == test::Way::kNccl)
    GTEST_SKIP()
        << "NCCL needs the same order of calls on all ranks, which two threads do not keep";
  const auto other = communicator_.split(0, rank_);
  const auto background = device_.create_stream(StreamKind::kBackground);
  std::thread thread([&] { many_sums(self_, *other, *background, 2, 200); });
  many_sums(self_, communicator_, stream_, 3, 200);
  thread.join();
}

// Each replay of the recording must sum the current values.
TEST_P(CommunicatorTest, CanBeRecorded) {
  constexpr int64_t kCount = 30'000;
  const Buffer allocated = communicator_.allocate(bytes_of(kCount, DType::kI64));
  const Buffer plain = device_.allocate(bytes_of(kCount, DType::kI64));
  const auto sum = [&] {
    communicator_.all_reduce_sum(allocated.data(), kCount, DType::kI64, stream_);
    communicator_.all_reduce_sum(plain.data(), kCount, DType::kI64, stream_);
  };
  const auto recording = device_.record(stream_, sum);
  if (!recording) GTEST_SKIP() << "the device records nothing";
  for (int64_t round = 1; round < 4; ++round) {
    for (const Buffer* buffer : {&allocated, &plain}) {
      self_.write(buffer->data(), std::vector<int64_t>(kCount, round * (rank_ + 1)));
    }
    recording->replay(stream_);
    const std::vector<int64_t> expected(kCount, round * ranks_ * (ranks_ + 1) / 2);
    for (const Buffer* buffer : {&allocated, &plain}) {
      ASSERT_EQ(self_.read<int64_t>(buffer->data(), kCount), expected) << "round " << round;
    }
  }
}

TEST_P(CommunicatorTest, ReportsMismatchedCollectives) {
  if (GetParam().way == test::Way::kNccl)
    GTEST_SKIP() << "NCCL does not compare what its ranks call";
  if (communicator_.placement().local_ranks != ranks_ || ranks_ == 1) {
    GTEST_SKIP() << "only ranks of one host compare what they do";
  }
  const Buffer allocated = communicator_.allocate(200'000 * sizeof(float));
  // Rank 0 uses a different offset in the same buffer.
  try {
    communicator_.all_reduce_sum(allocated.as<float>() + (rank_ == 0 ? 1 : 0), 100'000, DType::kF32,
                                 stream_);
    stream_.synchronize();
    FAIL() << "different offsets were summed";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("mismatched collectives"), std::string::npos)
        << error.what();
  }
  EXPECT_NE(communicator_.failure(), "");
  // All later operations must fail, too.
  const auto again = [&] {
    communicator_.all_reduce_sum(allocated.data(), 1, DType::kF32, stream_);
    stream_.synchronize();
  };
  EXPECT_THROW(again(), CommError);
}

INSTANTIATE_TEST_SUITE_P(By, CommunicatorTest, testing::ValuesIn(test::setups()),
                         [](const auto& each) { return test::name_of(each.param); });

}  // namespace
}  // namespace trireme::comm
