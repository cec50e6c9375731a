#include "data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

std::vector<int64_t> order(uint64_t seed, uint64_t epoch, int64_t size) {
  const Permutation permutation(seed, epoch, size);
  std::vector<int64_t> out(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) out[static_cast<size_t>(i)] = permutation(i);
  return out;
}

void expect_bijection(int64_t size) {
  std::vector<bool> seen(static_cast<size_t>(size), false);
  for (const int64_t value : order(7, 3, size)) {
    ASSERT_TRUE(value >= 0 && value < size) << value << " of " << size;
    ASSERT_FALSE(seen[static_cast<size_t>(value)]) << value << " twice of " << size;
    seen[static_cast<size_t>(value)] = true;
  }
}

TEST(PermutationTest, IsABijectionForEverySize) {
  for (int64_t size = 1; size <= 600; ++size) expect_bijection(size);
  for (const int64_t size :
       {1023, 1024, 1025, 1797, 4095, 4097, 50000, 60000, 65536, 65537, 1281167}) {
    expect_bijection(size);
  }
}

TEST(PermutationTest, DiffersByEpochAndBySeed) {
  for (const int64_t size : {20, 1797, 60000}) {
    const std::vector<int64_t> base = order(1, 0, size);
    for (const auto& other : {order(1, 1, size), order(2, 0, size), order(size_t{1} << 40, 0, size),
                              order(1, uint64_t{1} << 40, size)}) {
      int64_t same = 0;
      for (size_t i = 0; i < base.size(); ++i) same += base[i] == other[i] ? 1 : 0;
      EXPECT_LT(same, 10) << size;  // one is expected
    }
  }
}

TEST(PermutationTest, IsStableAcrossVersions) {
  // Checkpoints of earlier versions rely on it.
  EXPECT_EQ(order(1, 0, 8), (std::vector<int64_t>{7, 2, 4, 1, 3, 6, 0, 5}));
  EXPECT_EQ(Permutation(42, 5, 60000)(12345), 46831);
}

TEST(PermutationTest, SupportsHugeSizes) {
  const int64_t size = int64_t{1} << 40;
  for (const int64_t n : {size, size + 1, 3 * size}) {
    const Permutation permutation(1, 1, n);
    std::set<int64_t> seen;
    double sum = 0;
    for (int64_t i = 0; i < 10000; ++i) {
      const int64_t value = permutation(i * (n / 10000));
      ASSERT_TRUE(value >= 0 && value < n);
      seen.insert(value);
      sum += static_cast<double>(value) / static_cast<double>(n);
    }
    EXPECT_EQ(seen.size(), 10000);
    EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  }
}

// Returns how far chi-squared exceeds its expectation, in standard deviations.
double excess(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST(PermutationTest, OrdersOfSmallSetsAreEquallyLikely) {
  for (const int64_t size : {2, 3, 4, 5}) {
    std::map<std::vector<int64_t>, double> seen;
    constexpr int kDraws = 24000;
    for (uint64_t seed = 0; seed < kDraws; ++seed) ++seen[order(seed % 100, seed / 100, size)];
    double orders = 1;
    for (int64_t i = 2; i <= size; ++i) orders *= static_cast<double>(i);
    ASSERT_EQ(static_cast<double>(seen.size()), orders);
    std::vector<double> counts;
    for (const auto& [unused, count] : seen) counts.push_back(count);
    EXPECT_LT(excess(counts, kDraws / orders), 5) << size;
  }
}

TEST(PermutationTest, SamplesAreUniformlyDistributed) {
  constexpr int64_t kSize = 100;
  constexpr uint64_t kDraws = 20000;
  std::vector<double> places(kSize * kSize);
  std::vector<double> steps(kSize - 1);  // differences between consecutive samples
  for (uint64_t epoch = 0; epoch < kDraws; ++epoch) {
    const std::vector<int64_t> drawn = order(9, epoch, kSize);
    for (size_t i = 0; i < kSize; ++i) ++places[i * kSize + static_cast<size_t>(drawn[i])];
    for (size_t i = 1; i < kSize; ++i) {
      ++steps[static_cast<size_t>((drawn[i] - drawn[i - 1] + kSize) % kSize - 1)];
    }
  }
  EXPECT_LT(excess(places, static_cast<double>(kDraws) / kSize), 5);
  EXPECT_LT(excess(steps, static_cast<double>(kDraws)), 5);
}

TEST(PermutationTest, PositionOfIsTheInverse) {
  for (const int64_t size : {1, 2, 7, 64, 65, 1000, 4097, 60000}) {
    const Permutation permutation(5, 2, size);
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(permutation.position_of(permutation(i)), i);
  }
}

TEST(PermutationTest, NumbersDistinguishPermutationsOfAnEpoch) {
  const Permutation first(1, 0, 60000);
  const Permutation second(1, 0, 60000, 1);
  int64_t same = 0;
  for (int64_t i = 0; i < 60000; ++i) same += first(i) == second(i) ? 1 : 0;
  EXPECT_LT(same, 10);  // one is expected
}

std::vector<int64_t> order_of(const OrderOptions& options, uint64_t seed, int64_t epoch,
                              int64_t size) {
  const Order order(options, seed, epoch, size);
  std::vector<int64_t> samples(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) samples[static_cast<size_t>(i)] = order(i);
  return samples;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<int64_t> numbers(int64_t size) { return order_of({.shuffle = false}, 0, 0, size); }

TEST(OrderTest, WithoutShufflingIsTheOrderOfIndices) {
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(numbers(100)[static_cast<size_t>(i)], i);
    EXPECT_EQ(Order({.shuffle = false, .block = 4, .window = 8}, 1, 1, 100)(i), i);
  }
}

TEST(OrderTest, WithoutWindowsIsAPermutationOfTheEntireSet) {
  EXPECT_EQ(order_of({}, 7, 3, 1797), order(7, 3, 1797));
}

TEST(OrderTest, EverySampleOccursOncePerEpoch) {
  for (const int64_t size : {1, 2, 3, 7, 8, 9, 31, 32, 33, 100, 127, 128, 129, 1000, 1025}) {
    for (const int64_t block : {1, 2, 3, 8, 13, 64, 1000, 5000}) {
      for (const int64_t times : {1, 2, 3, 10}) {
        for (const int64_t more : {0, 1}) {
          const OrderOptions options{.block = block, .window = block * times + more};
          ASSERT_EQ(sorted(order_of(options, 11, 5, size)), numbers(size))
              << size << " samples in blocks of " << block << ", windows of " << options.window;
        }
      }
    }
  }
  const OrderOptions options{.block = 256, .window = 16384};
  EXPECT_EQ(sorted(order_of(options, 1, 0, 1281167)), numbers(1281167));
}

TEST(OrderTest, StreamsReadConsecutiveSamplesInTheSameRow) {
  EXPECT_EQ(order_of({.shuffle = false, .streams = 3}, 1, 1, 8),
            (std::vector<int64_t>{0, 3, 6, 1, 4, 7, 2, 5}));
  for (const int64_t size : {1, 2, 7, 8, 9, 64, 65}) {
    for (const int64_t streams : {1, 2, 3, 8, 64, 100}) {
      const std::vector<int64_t> all = order_of({.shuffle = false, .streams = streams}, 3, 2, size);
      ASSERT_EQ(sorted(all), numbers(size)) << size << " samples in " << streams << " streams";
      for (size_t i = static_cast<size_t>(streams); i < all.size(); ++i) {
        ASSERT_EQ(all[i], all[i - static_cast<size_t>(streams)] + 1);
      }
    }
  }
}

TEST(OrderTest, WindowsSupportHugeSizes) {
  const int64_t size = (int64_t{1} << 40) + 17;
  for (const int64_t window : {int64_t{16384}, INT64_MAX}) {
    const Order order({.block = 256, .window = window}, 1, 1, size);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 10000; ++i) {
      const int64_t sample = order(size - 1 - i * (size / 10000));
      ASSERT_TRUE(sample >= 0 && sample < size);
      seen.insert(sample);
    }
    EXPECT_EQ(seen.size(), 10000u);
  }
}

TEST(OrderTest, AWindowSpansFewBlocks) {
  constexpr int64_t kSize = 10007;  // the last block is short
  for (const OrderOptions& options :
       {OrderOptions{.block = 16, .window = 256}, OrderOptions{.block = 10, .window = 77}}) {
    const std::vector<int64_t> samples = order_of(options, 3, 1, kSize);
    const auto span = options.window;
    for (int64_t begin = 0; begin < kSize; begin += span) {
      std::set<int64_t> blocks;
      for (int64_t i = begin; i < std::min(begin + span, kSize); ++i) {
        blocks.insert(samples[static_cast<size_t>(i)] / options.block);
      }
      ASSERT_LE(std::ssize(blocks), span / options.block + 2) << "positions from " << begin;
    }
  }
}

TEST(OrderTest, WindowsDifferByEpochSeedAndPosition) {
  const OrderOptions options{.block = 100, .window = 1000};
  const std::vector<int64_t> base = order_of(options, 1, 0, 20000);
  for (const auto& other : {order_of(options, 1, 1, 20000), order_of(options, 2, 0, 20000)}) {
    int64_t same = 0;
    for (size_t i = 0; i < base.size(); ++i) same += base[i] == other[i] ? 1 : 0;
    EXPECT_LT(same, 10);
  }
  // If all windows were shuffled in the same way, many offsets within blocks would repeat.
  int64_t same = 0;
  for (size_t i = 0; i < 1000; ++i) same += base[i] % 100 == base[i + 1000] % 100 ? 1 : 0;
  EXPECT_LT(same, 40);  // ten are expected
}

TEST(OrderTest, WindowsAreStableAcrossVersions) {
  // Checkpoints of earlier versions rely on it.
  EXPECT_EQ(order_of({.block = 3, .window = 6}, 1, 0, 10),
            (std::vector<int64_t>{7, 0, 1, 2, 6, 8, 5, 3, 9, 4}));
  EXPECT_EQ(Order({.block = 256, .window = 16384}, 42, 5, 1281167)(123456), 1044761);
}

TEST(OrderTest, FirstSampleIsUniformlyDistributed) {
  constexpr int64_t kSize = 96;
  constexpr int64_t kDraws = 40000;
  for (const OrderOptions& options : {OrderOptions{}, OrderOptions{.block = 8, .window = 24}}) {
    std::vector<double> first(kSize);
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      ++first[static_cast<size_t>(Order(options, seed, 0, kSize)(0))];
    }
    EXPECT_LT(excess(first, static_cast<double>(kDraws) / kSize), 5) << options.block;
  }
}

// Windows are independent except that they have different blocks.
TEST(OrderTest, WindowsAreIndependent) {
  constexpr int64_t kSize = 96;
  constexpr uint64_t kDraws = 40000;
  const OrderOptions options{.block = 8, .window = 24};
  for (const auto& [a, b] : {std::pair{0, 50}, std::pair{23, 24}, std::pair{10, 95}}) {
    double sum = 0;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      const Order order(options, seed, 2, kSize);
      const double middle = (kSize - 1) / 2.0;
      sum += (static_cast<double>(order(a)) - middle) * (static_cast<double>(order(b)) - middle);
    }
    const double variance = (kSize * kSize - 1) / 12.0;
    const double correlation = sum / static_cast<double>(kDraws) / variance;
    EXPECT_NEAR(correlation, -1.0 / 11, 0.025) << a << " and " << b;
  }
}

OrderOptions options_of(const std::string& text) {
  DataConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      text + " synthetic { shape: 4 classes: 3 count: 11 }", &config));
  return order_options(config, *open_dataset(config, Part::kTraining));
}

TEST(OrderOptionsTest, ComeFromTheConfiguration) {
  EXPECT_EQ(options_of("").block, 0);
  EXPECT_TRUE(options_of("").shuffle);
  EXPECT_FALSE(options_of("shuffle: false").shuffle);
  EXPECT_EQ(options_of("shuffle_window {}").block, 256);
  EXPECT_EQ(options_of("shuffle_window { window: 512 }").window, 512);
  EXPECT_EQ(options_of("").balanced, nullptr);
  EXPECT_NE(options_of("sampling: BALANCED").balanced, nullptr);
}

TEST(OrderOptionsTest, RejectsInvalidOptions) {
  const auto error = [](const std::string& text) {
    return testing::message<ConfigError>([&] { options_of(text); });
  };
  EXPECT_SAYS(error("shuffle_window { block: 0 }"), "data.shuffle_window.block: 0 is less than 1");
  EXPECT_SAYS(error("shuffle_window { window: 255 }"),
              "data.shuffle_window.window: 255 is less than data.shuffle_window.block, 256");
  EXPECT_SAYS(
      error("sampling: BALANCED shuffle: false"),
      "data.sampling: BALANCED draws from all samples at random; remove data.shuffle: false");
  EXPECT_SAYS(error("sampling: BALANCED shuffle_window {}"),
              "data.sampling: BALANCED draws from all samples at random; remove "
              "data.shuffle_window");
}

TEST(ShareTest, SharesAreContiguousAndNearlyEqual) {
  for (int64_t total = 0; total < 40; ++total) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      int64_t begin = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(total, rank, ranks);
        EXPECT_EQ(share.begin, begin);
        EXPECT_EQ(share.rows, total / ranks + (rank < total % ranks ? 1 : 0));
        begin += share.rows;
      }
      EXPECT_EQ(begin, total);
    }
  }
}

}  // namespace
}  // namespace trireme::data
