#include "core/random.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme {
namespace {

// From kat_vectors of the Random123 library, philox4x32 with 10 rounds.
TEST(Philox, MatchesPublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NameHash, IsFnv1a) {
  EXPECT_EQ(name_hash(""), 0xcbf29ce484222325);
  EXPECT_EQ(name_hash("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(name_hash("foobar"), 0x85944171f73967e8);
}

TEST(Mix64, IsInjective) {
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 10000; ++i) seen.insert(mix64(i));
  EXPECT_EQ(seen.size(), 10000u);
}

TEST(Uniform, IsInTheHalfOpenInterval) {
  EXPECT_EQ(uniform(0), 0.0f);
  EXPECT_LT(uniform(0xffffffff), 1.0f);
  EXPECT_EQ(uniform(0x80000000), 0.5f);
}

// Pinned values: runs that are resumed by another build must see the same numbers.
TEST(Random, DoesNotChangeBetweenBuilds) {
  const uint64_t key = mix64(42 ^ (uint64_t{3} << 56));
  const Random4 expected =
      philox({7, 1, 5, 0}, {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  EXPECT_EQ(Random(42, RandomPurpose::kDropout, 5).four((uint64_t{1} << 32) + 7), expected);
}

TEST(Random, SplitsGroupsIntoNumbers) {
  const Random random(1, RandomPurpose::kInitialize, 9);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(random.bits(i), random.four(i / 4)[i % 4]);
    EXPECT_EQ(random.uniform_at(i), uniform(random.bits(i)));
  }
}

TEST(Random, SeedPurposeAndStreamAllMatter) {
  std::set<uint32_t> firsts;
  int made = 0;
  for (uint64_t seed : {0, 1, 2}) {
    for (auto purpose : {RandomPurpose::kInitialize, RandomPurpose::kShuffle,
                         RandomPurpose::kDropout, RandomPurpose::kAugment}) {
      for (uint64_t stream : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        firsts.insert(Random(seed, purpose, stream).bits(0));
        ++made;
      }
    }
  }
  EXPECT_EQ(firsts.size(), static_cast<size_t>(made));
}

struct Moments {
  double mean = 0, variance = 0;
};

template <class Draw>
Moments moments(Draw draw) {
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double value = draw(i);
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kDraws;
  return {mean, squares / kDraws - mean * mean};
}

TEST(Random, UniformNumbersAreUniform) {
  const Random random(3, RandomPurpose::kSynthetic);
  const Moments m = moments([&](uint64_t i) { return random.uniform_at(i); });
  EXPECT_NEAR(m.mean, 0.5, 0.003);
  EXPECT_NEAR(m.variance, 1.0 / 12, 0.001);
}

TEST(Random, NormalNumbersAreStandardNormal) {
  const Random random(3, RandomPurpose::kSynthetic);
  const Moments m = moments([&](uint64_t i) { return random.normal_at(i); });
  EXPECT_NEAR(m.mean, 0, 0.01);
  EXPECT_NEAR(m.variance, 1, 0.02);
  const Moments inside =
      moments([&](uint64_t i) { return std::abs(random.normal_at(i)) < 1 ? 1.0 : 0.0; });
  EXPECT_NEAR(inside.mean, 0.6827, 0.005);
}

}  // namespace
}  // namespace trireme
