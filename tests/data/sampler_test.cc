#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

namespace trireme {
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

TEST(PermutationTest, IsABijectionOfEverySize) {
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
      EXPECT_LT(same, 10) << size;  // one is to be expected
    }
  }
}

TEST(PermutationTest, IsTheSameForEver) {
  // Checkpoints of earlier versions rely on it.
  EXPECT_EQ(order(1, 0, 8), (std::vector<int64_t>{7, 2, 4, 1, 3, 6, 0, 5}));
  EXPECT_EQ(Permutation(42, 5, 60000)(12345), 46831);
}

TEST(PermutationTest, HugeSetsWork) {
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

// Chi-squared over its degrees of freedom, in standard deviations from what chance would give.
double excess(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST(PermutationTest, SmallSetsReachEveryOrderAlike) {
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

TEST(PermutationTest, EverySampleComesAnywhere) {
  constexpr int64_t kSize = 100;
  constexpr uint64_t kDraws = 20000;
  std::vector<double> places(kSize * kSize);
  std::vector<double> steps(kSize - 1);  // from one sample to the next
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
}  // namespace trireme
