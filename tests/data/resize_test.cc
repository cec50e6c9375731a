#include "data/images/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/data/goldens.h"

namespace trireme::data {
namespace {

using testing::golden;
using testing::noisy;
using testing::TestImage;

TestImage resized(TestImage from, const Box& box, ImageSize size, Filter filter) {
  TestImage to(size, from.channels);
  Resizer().resize(from.view(), box, to.view(), filter);
  return to;
}

Box all_of(const TestImage& image) {
  return {0, 0, static_cast<double>(image.size.height), static_cast<double>(image.size.width)};
}

double curve(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::kBilinear) return std::max(0.0, 1 - x);
  constexpr double kA = -0.5;
  if (x < 1) return (kA + 2) * x * x * x - (kA + 3) * x * x + 1;
  return x < 2 ? kA * x * x * x - 5 * kA * x * x + 8 * kA * x - 4 * kA : 0;
}

// Returns the weight of each of `size` inputs for an output.
std::vector<double> weights(Filter filter, int size, double begin, double extent, int outputs,
                            int output) {
  const double scale = extent / outputs;
  const double center = begin + (output + 0.5) * scale;
  std::vector<double> weights;
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    const bool touched = i + 1 > begin && i < begin + extent;
    weights.push_back(touched ? curve(filter, (i + 0.5 - center) / std::max(scale, 1.0)) : 0);
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Resizes by definition, in double precision. Values are clamped after each pass.
std::vector<double> reference(TestImage from, const Box& box, ImageSize size, Filter filter) {
  const int channels = from.channels;
  std::vector<double> rows;  // [from.height, size.width, channels]
  for (int y = 0; y < from.size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      const auto w = weights(filter, from.size.width, box.left, box.width, size.width, x);
      for (int c = 0; c < channels; ++c) {
        double sum = 0;
        for (int i = 0; i < from.size.width; ++i)
          sum += w[static_cast<size_t>(i)] * from.at(y, i, c);
        rows.push_back(std::clamp(sum, 0.0, 255.0));
      }
    }
  }
  std::vector<double> out;
  const int row = size.width * channels;
  for (int y = 0; y < size.height; ++y) {
    const auto w = weights(filter, from.size.height, box.top, box.height, size.height, y);
    for (int i = 0; i < row; ++i) {
      double sum = 0;
      for (int j = 0; j < from.size.height; ++j) {
        sum += w[static_cast<size_t>(j)] * rows[static_cast<size_t>(j * row + i)];
      }
      out.push_back(std::clamp(sum, 0.0, 255.0));
    }
  }
  return out;
}

TEST(ResizeTest, IsBitIdenticalToPillow) {
  struct Case {
    Box box;
    ImageSize size;
  };
  const std::vector<Case> cases = {
      // as in make_images.py
      {{0, 0, 47, 61}, {24, 24}},
      {{3, 5, 41, 36}, {57, 50}},
      {{0, 0, 47, 61}, {20, 61}},
      {{0, 0, 47, 61}, {47, 20}},
      {{2.25, 7.5, 38.25, 42.25}, {31, 17}},
      {{10, 20, 2, 3}, {7, 9}},
  };
  const std::map<std::string, Filter> filters = {{"nearest", Filter::kNearest},
                                                 {"bilinear", Filter::kBilinear},
                                                 {"bicubic", Filter::kBicubic}};
  for (const std::string image : {"large", "large_gray"}) {
    for (const auto& [name, filter] : filters) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const std::string result = image + "_" + name + "_" + std::to_string(i);
        EXPECT_TRUE(resized(golden(image), cases[i].box, cases[i].size, filter) == golden(result))
            << result;
      }
    }
  }
}

TEST(ResizeTest, MatchesTheDefinitionWithinRounding) {
  std::mt19937 random(1);
  const auto below = [&](int count) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
  };
  for (int i = 0; i < 150; ++i) {
    const TestImage from = noisy({1 + below(50), 1 + below(50)}, i % 2 ? 1 : 3, random());
    const double top = below(from.size.height * 4) / 4.0;
    const double left = below(from.size.width * 4) / 4.0;
    const Box box = {top, left, (1 + below(static_cast<int>((from.size.height - top) * 4))) / 4.0,
                     (1 + below(static_cast<int>((from.size.width - left) * 4))) / 4.0};
    const ImageSize size = {1 + below(60), 1 + below(60)};
    for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
      const TestImage to = resized(from, box, size, filter);
      const std::vector<double> exact = reference(from, box, size, filter);
      // Each pass rounds by up to 0.5. The absolute values of the cubic weights add up to 1.25.
      const double tolerance = filter == Filter::kBilinear ? 1.001 : 1.126;
      for (size_t j = 0; j < exact.size(); ++j) {
        ASSERT_NEAR(to.pixels[j], exact[j], tolerance) << i;
      }
    }
  }
}

TEST(ResizeTest, FlatImagesStayFlat) {
  for (const uint8_t level : {0, 1, 127, 254, 255}) {
    TestImage from({40, 33}, 3);
    std::ranges::fill(from.pixels, level);
    for (const Filter filter : {Filter::kNearest, Filter::kBilinear, Filter::kBicubic}) {
      const TestImage to = resized(from, {1.5, 2.25, 30, 20}, {55, 7}, filter);
      EXPECT_TRUE(std::ranges::all_of(to.pixels, [&](uint8_t p) { return p == level; })) << +level;
    }
  }
}

TEST(ResizeTest, CopiesImagesOfTheSameSize) {
  const TestImage from = noisy({30, 70}, 3);
  EXPECT_EQ(resized(from, all_of(from), from.size, Filter::kBicubic), from);
}

// A decoder may have decoded only the box.
TEST(ResizeTest, DoesNotDependOnPixelsOutsideOfTheBox) {
  TestImage whole = noisy({60, 60}, 3);
  TestImage part(whole.view().part({10, 20, 31, 25}));
  for (const Filter filter : {Filter::kNearest, Filter::kBilinear, Filter::kBicubic}) {
    EXPECT_EQ(resized(whole, {10.5, 20, 30, 24.75}, {40, 20}, filter),
              resized(part, {0.5, 0, 30, 24.75}, {40, 20}, filter));
  }
}

TEST(ResizeTest, DoesNotWriteOutsideOfTheTarget) {
  for (const int channels : {1, 3}) {
    for (const int width : {1, 15, 21, 22, 70}) {
      TestImage from = noisy({50, 50}, channels);
      for (const ImageSize size : {ImageSize{33, width}, ImageSize{50, width}}) {
        TestImage around({size.height + 2, size.width + 2}, channels);
        std::ranges::fill(around.pixels, uint8_t{99});
        const ImageView target = around.view().part({1, 1, size.height, size.width});
        Resizer().resize(from.view(), all_of(from), target, Filter::kBilinear);
        EXPECT_EQ(TestImage(target), resized(from, all_of(from), size, Filter::kBilinear));
        for (int y = 0; y < size.height; ++y) std::fill_n(target.row(y), target.row_bytes(), 99);
        EXPECT_TRUE(std::ranges::all_of(around.pixels, [](uint8_t p) { return p == 99; }));
      }
    }
  }
}

TEST(ResizeTest, DoesNotDependOnThePreviousImage) {
  Resizer resizer;
  for (const int extent : {9, 90, 31, 64, 7}) {
    TestImage from = noisy({extent, 100 - extent}, extent % 2 ? 3 : 1);
    TestImage to({25, 2 * extent}, from.channels);
    resizer.resize(from.view(), all_of(from), to.view(), Filter::kBicubic);
    EXPECT_EQ(to, resized(from, all_of(from), to.size, Filter::kBicubic));
  }
}

}  // namespace
}  // namespace trireme::data
