#include "data/mix.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/data/files.h"

namespace trireme::data {
namespace {

using testing::message;

MixConfig parse(const std::string& text) {
  MixConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

SampleSpec images(DType dtype = DType::kU8, Layout layout = Layout::row_major()) {
  SampleSpec spec;
  spec.input = {dtype, Shape{3, 8, 6}, layout};
  spec.classes = 4;
  spec.target = {DType::kF32, Shape{4}, Layout::row_major()};
  return spec;
}

// Two different samples, of classes 0 and 1.
template <class T>
struct Pair {
  std::vector<T> a, b;
  std::vector<float> p{1, 0, 0, 0}, q{0, 1, 0, 0};

  explicit Pair(size_t elements = 144) : a(elements), b(elements) {
    for (size_t i = 0; i < elements; ++i) {
      a[i] = static_cast<T>(i * 37 % 251);
      b[i] = static_cast<T>(255 - i * 91 % 256);
    }
  }
  void mix(const Mix& mix, int64_t epoch, int64_t position) {
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    mix(epoch, position, {bytes(a), bytes(p)}, {bytes(b), bytes(q)});
  }
  bool operator==(const Pair&) const = default;
};

TEST(Beta, HasTheMomentsOfTheDistribution) {
  constexpr int kDraws = 200000;
  for (const double alpha : {0.05, 0.2, 0.5, 1.0, 1.7, 8.0, 300.0}) {
    double mean = 0;
    double square = 0;
    double fourth = 0;
    for (int i = 0; i < kDraws; ++i) {
      Draws draws(5, 0, i, 0);
      const double x = draw_beta(alpha, draws);
      ASSERT_GE(x, 0);
      ASSERT_LE(x, 1);
      mean += x / kDraws;
      square += std::pow(x - 0.5, 2) / kDraws;
      fourth += std::pow(x - 0.5, 4) / kDraws;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(square / variance, 1, 0.02) << alpha;
    EXPECT_NEAR(fourth * 16 * (2 * alpha + 1) * (2 * alpha + 3) / 3, 1, 0.03) << alpha;
  }
}

TEST(Mix, MixupRoundsBytesToNearest) {
  const Mix mix(parse("mixup_alpha: 1"), 3, images());
  for (int64_t position = 0; position < 200; position += 2) {
    const Pair<uint8_t> before;
    Pair<uint8_t> after;
    after.mix(mix, 1, position);
    const double share = after.p[0];
    EXPECT_EQ(after.p[0] + after.p[1], 1);
    EXPECT_EQ(after.q[0] + after.q[1], 1);
    EXPECT_EQ(after.p[0], after.q[1]);
    for (size_t i = 0; i < before.a.size(); ++i) {
      const double exact = share * before.a[i] + (1 - share) * before.b[i];
      const double other = share * before.b[i] + (1 - share) * before.a[i];
      ASSERT_LE(std::abs(after.a[i] - exact), 0.5);
      ASSERT_LE(std::abs(after.b[i] - other), 0.5);
    }
  }
}

TEST(Mix, MixupOfFloats) {
  const Mix mix(parse("mixup_alpha: 0.4"), 3, images(DType::kF32));
  const Pair<float> before;
  Pair<float> after;
  after.mix(mix, 0, 4);
  const double share = after.p[0];
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  for (size_t i = 0; i < before.a.size(); ++i) {
    ASSERT_NEAR(after.a[i], share * before.a[i] + (1 - share) * before.b[i], 1e-4);
    ASSERT_NEAR(after.b[i], share * before.b[i] + (1 - share) * before.a[i], 1e-4);
  }
}

// Returns which elements of the first row come from the second.
template <class T>
std::vector<bool> exchanged(const Pair<T>& before, const Pair<T>& after) {
  std::vector<bool> out;
  for (size_t i = 0; i < before.a.size(); ++i) {
    const bool unchanged = after.a[i] == before.a[i] && after.b[i] == before.b[i];
    EXPECT_TRUE(unchanged || (after.a[i] == before.b[i] && after.b[i] == before.a[i]));
    out.push_back(!unchanged);
  }
  return out;
}

TEST(Mix, CutMixExchangesABoxOfAllChannelsAndItsShareOfTheLabels) {
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    const Mix planes(parse("cutmix_alpha: 1"), 9, images(dtype));
    const Mix pixels(parse("cutmix_alpha: 1"), 9, images(dtype, Layout::channels_last()));
    bool cut = false;
    for (int64_t position = 0; position < 100; position += 2) {
      const auto check = [&](auto before) {
        auto by_plane = before;
        auto by_pixel = before;
        by_plane.mix(planes, 2, position);
        by_pixel.mix(pixels, 2, position);
        EXPECT_EQ(by_plane.p, by_pixel.p);
        EXPECT_EQ(by_plane.p[0] + by_plane.p[1], 1);
        const std::vector<bool> of_planes = exchanged(before, by_plane);
        const std::vector<bool> of_pixels = exchanged(before, by_pixel);
        int top = 8, bottom = 0, left = 6, right = 0, count = 0;
        for (int y = 0; y < 8; ++y) {
          for (int x = 0; x < 6; ++x) {
            const auto at = static_cast<size_t>(y * 6 + x);
            for (size_t c = 0; c < 3; ++c) {
              EXPECT_EQ(of_planes[at], of_planes[c * 48 + at]);
              EXPECT_EQ(of_planes[at], of_pixels[at * 3 + c]);
            }
            if (!of_planes[at]) continue;
            ++count;
            top = std::min(top, y), bottom = std::max(bottom, y + 1);
            left = std::min(left, x), right = std::max(right, x + 1);
          }
        }
        EXPECT_FLOAT_EQ(by_plane.p[0], 1 - static_cast<float>(count) / 48);
        if (count == 0) return;
        cut = true;
        EXPECT_EQ(count, (bottom - top) * (right - left)) << "not a box";
      };
      if (dtype == DType::kU8) check(Pair<uint8_t>());
      if (dtype == DType::kF32) check(Pair<float>());
    }
    EXPECT_TRUE(cut);
  }
}

TEST(Mix, IsAPureFunctionOfEpochAndPosition) {
  const Mix mix(parse("mixup_alpha: 1 cutmix_alpha: 1"), 3, images());
  const auto mixed = [&](int64_t epoch, int64_t position) {
    Pair<uint8_t> pair;
    pair.mix(mix, epoch, position);
    return pair;
  };
  EXPECT_EQ(mixed(1, 6), mixed(1, 6));
  EXPECT_NE(mixed(1, 6), mixed(2, 6));
  EXPECT_NE(mixed(1, 6), mixed(1, 8));
}

TEST(Mix, MixesPairsWithTheGivenProbabilityByBothMethods) {
  SampleSpec spec = images();
  spec.input.shape = Shape{1, 48, 48};
  const Mix mix(parse("mixup_alpha: 1 cutmix_alpha: 1 probability: 0.3"), 3, spec);
  const Pair<uint8_t> before(48 * 48);
  int mixups = 0;
  int cutmixes = 0;
  for (int64_t position = 0; position < 8000; position += 2) {
    Pair<uint8_t> after = before;
    after.mix(mix, 0, position);
    if (after == before) continue;
    int unmixed = 0;  // pixels equal to one of the two images
    for (size_t i = 0; i < before.a.size(); ++i) {
      unmixed += after.a[i] == before.a[i] || after.a[i] == before.b[i];
    }
    ++(unmixed == 48 * 48 ? cutmixes : mixups);
  }
  EXPECT_NEAR(mixups, 600, 75);
  EXPECT_NEAR(cutmixes, 600, 75);
}

TEST(Mix, RejectsInvalidConfigurations) {
  const auto refused = [](const std::string& text, const SampleSpec& spec) {
    return message<ConfigError>([&] { Mix(parse(text), 0, spec); });
  };
  EXPECT_SAYS(refused("mixup_alpha: -1", images()), "data.mix.mixup_alpha: -1 is not a number");
  EXPECT_SAYS(refused("cutmix_alpha: nan", images()), "data.mix.cutmix_alpha: nan is not a");
  EXPECT_SAYS(refused("", images()), "data.mix: has no effect");
  EXPECT_SAYS(refused("mixup_alpha: 1 probability: 1.5", images()),
              "data.mix.probability: 1.5 is not in [0, 1]");
  SampleSpec spec = images();
  spec.classes = 0;
  EXPECT_SAYS(refused("mixup_alpha: 1", spec), "data.mix: needs samples with class labels");
  spec = images();
  spec.input.shape = Shape{7};
  EXPECT_SAYS(refused("cutmix_alpha: 1", spec), "data.mix.cutmix_alpha: needs images");
  spec.input.dtype = DType::kI32;
  EXPECT_SAYS(refused("mixup_alpha: 1", spec), "data.mix: needs inputs of u8 or f32");
}

}  // namespace
}  // namespace trireme::data
