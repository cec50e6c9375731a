#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "core/random.h"
#include "tests/comm/ranks.h"

namespace trireme {
namespace {

using test::Hosts;

class CommunicatorTest : public testing::TestWithParam<Hosts> {
 protected:
  std::unique_ptr<Device> device_ = test::cpu();
  std::unique_ptr<Stream> stream_ = device_->create_stream(StreamKind::kCompute);
  std::unique_ptr<Communicator> communicator_ = test::join(GetParam());
  int rank_ = communicator_->rank();
  int ranks_ = communicator_->size();
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

enum class Order { kByRank, kAny };

// Sums `count` elements at data and holds the result against a sum in rank order. On one host sums
// in allocated memory have just that order; MPI and several hosts choose their own, the same on all
// ranks.
template <class T>
void expect_sum(Communicator& communicator, Stream& stream, T* data, int64_t count,
                Order order = Order::kByRank) {
  if (communicator.placement().hosts > 1) order = Order::kAny;
  for (int64_t i = 0; i < count; ++i) data[i] = value<T>(communicator.rank(), i);
  communicator.all_reduce_sum(data, count, dtype_of<T>(), stream);
  stream.synchronize();
  for (int64_t i = 0; i < count; ++i) {
    T expected = value<T>(0, i);
    T scale = std::abs(expected);
    for (int rank = 1; rank < communicator.size(); ++rank) {
      expected += value<T>(rank, i);
      scale += std::abs(value<T>(rank, i));
    }
    if (order == Order::kByRank) {
      ASSERT_EQ(data[i], expected) << "element " << i << " of " << count;
    } else if constexpr (std::is_integral_v<T>) {
      ASSERT_EQ(data[i], expected) << "element " << i << " of " << count;
    } else {
      ASSERT_NEAR(data[i], expected, 4 * scale * std::numeric_limits<T>::epsilon())
          << "element " << i << " of " << count;
    }
  }
  const std::vector<T> all = test::gather(communicator, data, count, stream);
  for (int rank = 0; rank < communicator.size(); ++rank) {
    ASSERT_EQ(0,
              std::memcmp(all.data() + rank * count, data, static_cast<size_t>(count) * sizeof(T)))
        << "rank " << rank << " has other bits";
  }
}

TEST_P(CommunicatorTest, KnowsWhereItsRanksAre) {
  const Placement& placement = communicator_->placement();
  EXPECT_EQ(placement.rank, test::own_rank());
  EXPECT_EQ(placement.ranks, test::started_ranks());
  std::vector<int> lowest;  // rank of each host, in the order of hosts
  int local_ranks = 0;
  int local_rank = 0;
  const int own_host = test::host_of(GetParam(), rank_, ranks_);
  int host = -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    const int its_host = test::host_of(GetParam(), rank, ranks_);
    const bool first = std::ranges::none_of(
        lowest, [&](int other) { return test::host_of(GetParam(), other, ranks_) == its_host; });
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

TEST_P(CommunicatorTest, AllocatesZeroedAlignedMemory) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{1000003}}) {
    const Buffer first = communicator_->allocate(bytes);
    const Buffer second = communicator_->allocate(bytes);
    for (const Buffer* buffer : {&first, &second}) {
      EXPECT_EQ(buffer->bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
      EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + bytes,
                              [](std::byte each) { return each == std::byte{0}; }));
      std::fill_n(buffer->data(), bytes, static_cast<std::byte>(rank_ + 1));
    }
    communicator_->barrier(*stream_);
    for (const Buffer* buffer : {&first, &second}) {
      EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + bytes, [&](std::byte each) {
        return each == static_cast<std::byte>(rank_ + 1);
      }));
    }
  }
}

template <class T>
void sum_everywhere(Communicator& communicator, Device& device, Stream& stream) {
  constexpr T kGuard = 77;
  constexpr int64_t kMost = 70'000;
  const size_t bytes = (kMost + 64) * sizeof(T);
  const Buffer shared = communicator.allocate(bytes);
  const Buffer plain = device.allocate(bytes);
  for (const Buffer* buffer : {&shared, &plain}) {
    const Order order = buffer == &shared ? Order::kByRank : Order::kAny;
    for (const int64_t count : {1, 2, 7, 16, 33, 1001, 8191, 8193, 16384, 16385, 20011, 70'000}) {
      for (const int64_t offset : {1, 16, 37}) {
        SCOPED_TRACE(testing::Message() << (buffer == &shared ? "shared" : "plain") << " memory, "
                                        << count << " elements at " << offset);
        T* data = buffer->as<T>() + offset;
        data[-1] = data[count] = kGuard;
        ASSERT_NO_FATAL_FAILURE(expect_sum(communicator, stream, data, count, order));
        ASSERT_EQ(data[-1], kGuard);
        ASSERT_EQ(data[count], kGuard);
      }
    }
  }
}

TEST_P(CommunicatorTest, SumsF32) { sum_everywhere<float>(*communicator_, *device_, *stream_); }
TEST_P(CommunicatorTest, SumsF64) { sum_everywhere<double>(*communicator_, *device_, *stream_); }
TEST_P(CommunicatorTest, SumsI64) { sum_everywhere<int64_t>(*communicator_, *device_, *stream_); }

TEST_P(CommunicatorTest, SumsALargeBuffer) {
  const int64_t count = (4 << 20) / 4 + 3;
  const Buffer shared = communicator_->allocate(static_cast<size_t>(count) * 4);
  expect_sum(*communicator_, *stream_, shared.as<float>(), count);
}

TEST_P(CommunicatorTest, SumsNothing) {
  communicator_->all_reduce_sum(nullptr, 0, DType::kF32, *stream_);
}

TEST_P(CommunicatorTest, RefusesTypesThatHaveNoSum) {
  float data[4] = {};
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kI32, DType::kU8}) {
    EXPECT_THROW(communicator_->all_reduce_sum(data, 1, dtype, *stream_), CommError);
    EXPECT_THROW(communicator_->reduce_scatter_sum(data, data + 1, 1, dtype, *stream_), CommError);
  }
}

TEST_P(CommunicatorTest, ReduceScatters) {
  for (const int64_t count : {1, 5, 1001}) {
    std::vector<int64_t> in(static_cast<size_t>(count * ranks_));
    for (size_t i = 0; i < in.size(); ++i) in[i] = value<int64_t>(rank_, static_cast<int64_t>(i));
    std::vector<int64_t> out(static_cast<size_t>(count));
    communicator_->reduce_scatter_sum(in.data(), out.data(), count, DType::kI64, *stream_);
    for (int64_t i = 0; i < count; ++i) {
      int64_t expected = 0;
      for (int rank = 0; rank < ranks_; ++rank) expected += value<int64_t>(rank, rank_ * count + i);
      ASSERT_EQ(out[static_cast<size_t>(i)], expected);
    }
  }
}

TEST_P(CommunicatorTest, AllGathers) {
  const int64_t count = 11;
  const auto total = static_cast<size_t>(count * ranks_);
  std::vector<double> expected(total);
  for (size_t i = 0; i < total; ++i) {
    expected[i] = value<double>(static_cast<int>(i) / count, static_cast<int64_t>(i) % count);
  }
  double* const own = expected.data() + rank_ * count;
  std::vector<double> apart(total);
  communicator_->all_gather(own, apart.data(), count, DType::kF64, *stream_);
  EXPECT_EQ(apart, expected);
  std::vector<double> in_place(total);
  std::copy_n(own, count, in_place.begin() + rank_ * count);
  communicator_->all_gather(in_place.data() + rank_ * count, in_place.data(), count, DType::kF64,
                            *stream_);
  EXPECT_EQ(in_place, expected);
}

TEST_P(CommunicatorTest, BroadcastsFromEveryRank) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI32,
                            DType::kI64, DType::kU8}) {
    for (int root = 0; root < ranks_; ++root) {
      const int64_t count = 1000 + root;
      std::vector<uint8_t> data(static_cast<size_t>(count) * size_of(dtype));
      std::fill(data.begin(), data.end(), static_cast<uint8_t>(rank_ + 1));
      communicator_->broadcast(data.data(), count, dtype, root, *stream_);
      EXPECT_TRUE(std::ranges::all_of(data, [&](uint8_t each) { return each == root + 1; }));
    }
  }
}

TEST_P(CommunicatorTest, RefusesARankThatDoesNotExist) {
  float data = 0;
  try {
    communicator_->broadcast(&data, 1, DType::kF32, ranks_, *stream_);
    FAIL() << "broadcast from rank " << ranks_;
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(ranks_)), std::string::npos)
        << error.what();
  }
}

TEST_P(CommunicatorTest, SendsAroundTheRing) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has no peer";
  for (const int64_t count : {1, 100'003}) {
    std::vector<int64_t> data(static_cast<size_t>(count), rank_ == 0 ? 1 : 0);
    if (rank_ > 0) communicator_->recv(data.data(), count, DType::kI64, rank_ - 1, *stream_);
    for (int64_t& each : data) each *= 3;
    communicator_->send(data.data(), count, DType::kI64, (rank_ + 1) % ranks_, *stream_);
    if (rank_ > 0) continue;
    communicator_->recv(data.data(), count, DType::kI64, ranks_ - 1, *stream_);
    const auto expected = static_cast<int64_t>(std::pow(3, ranks_));
    EXPECT_TRUE(std::ranges::all_of(data, [&](int64_t each) { return each == expected; }));
  }
}

TEST_P(CommunicatorTest, ReceivingAnotherCountFails) {
  if (ranks_ == 1) GTEST_SKIP() << "one rank has no peer";
  double data[4] = {};
  if (rank_ == 0) communicator_->send(data, 2, DType::kF64, 1, *stream_);
  if (rank_ == 1) {
    EXPECT_THROW(communicator_->recv(data, 4, DType::kF64, 0, *stream_), CommError);
  }
}

TEST_P(CommunicatorTest, Splits) {
  // Odd and even ranks apart, each in descending order.
  const auto part = communicator_->split(rank_ % 2, ranks_ - rank_);
  std::vector<int> members;
  for (int rank = ranks_ - 1; rank >= 0; --rank) {
    if (rank % 2 == rank_ % 2) members.push_back(rank);
  }
  ASSERT_EQ(part->size(), static_cast<int>(members.size()));
  ASSERT_EQ(members[static_cast<size_t>(part->rank())], rank_);
  const Buffer buffer = part->allocate(100'000 * sizeof(float));
  expect_sum(*part, *stream_, buffer.as<float>(), 100'000);
  expect_sum(*part, *stream_, buffer.as<float>(), 100);
  int64_t sum = rank_;
  part->all_reduce_sum(&sum, 1, DType::kI64, *stream_);
  EXPECT_EQ(sum, std::accumulate(members.begin(), members.end(), 0));
  // The whole still works.
  expect_sum(*communicator_, *stream_, buffer.as<float>(), 1000, Order::kAny);
}

TEST_P(CommunicatorTest, RefusesANegativeColour) {
  EXPECT_THROW(communicator_->split(-1, 0), CommError);
}

// Ranks that arrive at any time, small and large sums and barriers mixed.
void many_sums(Communicator& communicator, Stream& stream, uint64_t salt, int rounds) {
  constexpr int64_t kMost = 40'000;
  const Buffer shared = communicator.allocate(kMost * sizeof(float));
  std::vector<float> plain(kMost);
  std::mt19937 common(static_cast<uint32_t>(salt));
  std::mt19937 own(static_cast<uint32_t>(salt * 31) + static_cast<uint32_t>(communicator.rank()));
  for (int round = 0; round < rounds; ++round) {
    const int64_t count = common() % 3 ? common() % 300 + 1 : common() % kMost + 1;
    float* data = common() % 2 ? shared.as<float>() : plain.data();
    const int64_t offset = common() % static_cast<uint32_t>(kMost - count + 1);
    if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
    for (int64_t i = 0; i < count; ++i) {
      data[offset + i] = static_cast<float>(communicator.rank() + 1 + round + i % 100);
    }
    communicator.all_reduce_sum(data + offset, count, DType::kF32, stream);
    if (common() % 8 == 0) communicator.barrier(stream);
    stream.synchronize();
    const int ranks = communicator.size();
    for (int64_t i = 0; i < count; ++i) {
      const auto expected = static_cast<float>(ranks * (ranks + 1) / 2 + ranks * (round + i % 100));
      ASSERT_EQ(data[offset + i], expected) << "round " << round << ", element " << i;
    }
  }
}

TEST_P(CommunicatorTest, SumsUnderAnyTiming) { many_sums(*communicator_, *stream_, 1, 500); }

TEST_P(CommunicatorTest, TwoAtOnceOnTwoThreads) {
  const auto other = communicator_->split(0, rank_);
  const auto background = device_->create_stream(StreamKind::kBackground);
  std::thread thread([&] { many_sums(*other, *background, 2, 200); });
  many_sums(*communicator_, *stream_, 3, 200);
  thread.join();
}

TEST_P(CommunicatorTest, ReportsRanksThatDisagree) {
  if (communicator_->placement().local_ranks != ranks_ || ranks_ == 1) {
    GTEST_SKIP() << "only ranks of one host compare what they do";
  }
  const Buffer shared = communicator_->allocate(200'000 * sizeof(float));
  // One rank is at another place of the same buffer.
  try {
    communicator_->all_reduce_sum(shared.as<float>() + (rank_ == 0 ? 1 : 0), 100'000, DType::kF32,
                                  *stream_);
    FAIL() << "different places were summed";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("disagree"), std::string::npos) << error.what();
  }
  // Nothing that follows can be trusted.
  float data = 1;
  EXPECT_THROW(communicator_->all_reduce_sum(&data, 1, DType::kF32, *stream_), CommError);
}

INSTANTIATE_TEST_SUITE_P(Placed, CommunicatorTest,
                         testing::Values(Hosts::kReal, Hosts::kHalves, Hosts::kInterleaved,
                                         Hosts::kOneEach),
                         [](const auto& each) { return test::name_of(each.param); });

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::test::run_on_all_ranks(argc, argv); }
