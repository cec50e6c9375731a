// Random transforms of colors, operations and boxes. color_test.cc tests the operations themselves.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/transforms/transform.h"
#include "tests/data/goldens.h"

namespace trireme::data {
namespace {

using testing::config_of;
using testing::golden;
using ::testing::HasSubstr;
using testing::message;
using testing::noisy;
using testing::TestImage;

std::unique_ptr<Transform> transform(const std::string& text) {
  return make_transform(config_of("transform { " + text + " }").transform(0), "data.transform[2]");
}

TestImage applied(const Transform& tested, TestImage image, int64_t sample = 0) {
  Canvas canvas(image.channels);
  TestImage output(image.size, image.channels);
  canvas.begin(output.view());
  canvas.borrow(image.view());
  Draws draws(1, 0, sample, 0);
  tested.apply(canvas, draws);
  canvas.finish();
  return output;
}

// For use as a map key.
std::string bytes_of(const TestImage& image) { return {image.pixels.begin(), image.pixels.end()}; }

const std::vector<std::string> kUnsigned = {"Identity", "Posterize", "Solarize", "AutoContrast",
                                            "Equalize"};
const std::vector<std::string> kSigned = {"ShearX",     "ShearY",   "TranslateX",
                                          "TranslateY", "Rotate",   "Brightness",
                                          "Color",      "Contrast", "Sharpness"};

// The images that torchvision produces from "small", each with the operations (and signs) that
// produce it.
std::map<std::string, std::set<std::string>> results_of_torchvision(const std::string& name) {
  std::map<std::string, std::set<std::string>> results;
  const auto add = [&](const std::string& operation) {
    results[bytes_of(golden(name + "_" + operation))].insert(operation);
  };
  for (const std::string& operation : kUnsigned) add(operation + "_+");
  for (const std::string& operation : kSigned) add(operation + "_+"), add(operation + "_-");
  return results;
}

TEST(RandAugmentTest, DrawsTorchvisionsOperationsUniformly) {
  const auto results = results_of_torchvision("rand");
  const auto augment = transform("rand_augment { operations: 1 magnitude: 9 fill: 77 }");
  constexpr int kSamples = 14000;
  std::map<std::set<std::string>, int> counts;
  for (int i = 0; i < kSamples; ++i) {
    const auto found = results.find(bytes_of(applied(*augment, golden("small"), i)));
    ASSERT_NE(found, results.end()) << "sample " << i << " does not match any of torchvision's";
    ++counts[found->second];
  }
  for (const auto& [pixels, operations] : results) {
    double share = 0;  // several operations may have the same result, e.g. no change
    for (const std::string& operation : operations) {
      const bool both = std::ranges::count(kSigned, operation.substr(0, operation.size() - 2)) > 0;
      share += (both ? 0.5 : 1) / 14;
    }
    const double stddev = std::sqrt(kSamples * share * (1 - share));
    EXPECT_NEAR(counts[operations], kSamples * share, 4.5 * stddev) << *operations.begin();
  }
}

TEST(RandAugmentTest, AppliesSeveralOperationsInSequence) {
  const auto none = transform("rand_augment { operations: 0 }");
  EXPECT_FALSE(none->random());
  EXPECT_EQ(applied(*none, golden("small")), golden("small"));
  // Two operations produce far more different images than one.
  std::set<std::string> results;
  const auto two = transform("rand_augment { operations: 2 }");
  EXPECT_TRUE(two->random());
  for (int i = 0; i < 1000; ++i) results.insert(bytes_of(applied(*two, golden("small"), i)));
  EXPECT_GT(results.size(), 150U);
}

TEST(TrivialAugmentTest, MatchesTorchvision) {
  // The expected images cover some of the strengths; each must occur.
  auto missing = results_of_torchvision("trivial");
  const auto augment = transform("trivial_augment { fill: 77 }");
  EXPECT_TRUE(augment->random());
  for (int i = 0; i < 20000 && !missing.empty(); ++i) {
    missing.erase(bytes_of(applied(*augment, golden("small"), i)));
  }
  for (const auto& [pixels, operations] : missing) ADD_FAILURE() << *operations.begin();
}

TEST(ColorJitterTest, FactorsCoverTheirRange) {
  const auto jitter = transform("color_jitter { brightness: 0.4 }");
  TestImage flat({4, 4}, 3);
  std::ranges::fill(flat.pixels, uint8_t{100});
  int min = 255;
  int max = 0;
  for (int i = 0; i < 1000; ++i) {
    const TestImage result = applied(*jitter, flat, i);
    min = std::min<int>(min, result.pixels[0]);
    max = std::max<int>(max, result.pixels[0]);
  }
  EXPECT_GE(min, 59);
  EXPECT_LE(min, 62);
  EXPECT_GE(max, 138);
  EXPECT_LE(max, 140);
}

TEST(ColorJitterTest, EachStrengthHasAnEffect) {
  const TestImage image = noisy({8, 8}, 3);
  for (const std::string part : {"brightness", "contrast", "saturation", "hue"}) {
    const auto jitter = transform("color_jitter { " + part + ": 0.5 }");
    EXPECT_TRUE(jitter->random());
    EXPECT_NE(applied(*jitter, image), image) << part;
  }
  const auto nothing = transform("color_jitter {}");
  EXPECT_FALSE(nothing->random());
  EXPECT_EQ(applied(*nothing, image), image);
}

TEST(ColorJitterTest, OrderIsRandom) {
  // The pixels are 255 and 55; b in [0.9, 1.1] is the factor of brightness and c in [0, 2] that of
  // contrast. If contrast comes last, the sum is 310 b or the first pixel becomes 255. If
  // brightness comes last, the sum is 255 b + max(0, 155 - 100 c) b; then b < 1 and a sum below
  // 270, which only occur in this order, have a probability of 3/16.
  const auto jitter = transform("color_jitter { brightness: 0.1 contrast: 1 }");
  TestImage image({1, 2}, 1);
  image.pixels = {255, 55};
  constexpr int kSamples = 4000;
  int brightness_last = 0;
  for (int i = 0; i < kSamples; ++i) {
    const TestImage result = applied(*jitter, image, i);
    brightness_last += result.pixels[0] < 255 && result.pixels[0] + result.pixels[1] < 270 ? 1 : 0;
  }
  EXPECT_NEAR(brightness_last, kSamples * 3 / 16 / 2, 90);
}

TEST(GrayscaleTest, IsAppliedWithTheGivenProbability) {
  const TestImage image = noisy({8, 8}, 3);
  EXPECT_EQ(applied(*transform("grayscale { probability: 0 }"), image), image);
  const TestImage gray = applied(*transform("grayscale { probability: 1 }"), image);
  for (size_t i = 0; i < gray.pixels.size(); i += 3) {
    ASSERT_EQ(gray.pixels[i], gray.pixels[i + 1]);
    ASSERT_EQ(gray.pixels[i], gray.pixels[i + 2]);
  }
  EXPECT_FALSE(transform("grayscale { probability: 1 }")->random());
  const auto sometimes = transform("grayscale { probability: 0.3 }");
  int count = 0;
  for (int i = 0; i < 2000; ++i) count += applied(*sometimes, image, i) == gray;
  EXPECT_NEAR(count, 600, 90);
}

// Returns the bounding box of the pixels that differ.
Region differing(TestImage a, TestImage b) {
  int top = a.size.height, left = a.size.width, bottom = 0, right = 0;
  for (int y = 0; y < a.size.height; ++y) {
    for (int x = 0; x < a.size.width; ++x) {
      if (a.at(y, x, 0) == b.at(y, x, 0)) continue;
      top = std::min(top, y), bottom = std::max(bottom, y + 1);
      left = std::min(left, x), right = std::max(right, x + 1);
    }
  }
  return {top, left, std::max(bottom - top, 0), std::max(right - left, 0)};
}

TEST(RandomErasingTest, ErasesBoxesWithinBounds) {
  TestImage image({60, 80}, 3);
  std::ranges::fill(image.pixels, uint8_t{200});
  const auto erasing = transform(
      "random_erasing { probability: 0.7 min_scale: 0.1 max_scale: 0.3 min_ratio: 0.5 max_ratio: 2 "
      "fill: 9 }");
  int erased = 0;
  double min_area = 1;
  double max_area = 0;
  std::set<int> tops;
  for (int i = 0; i < 2000; ++i) {
    const TestImage result = applied(*erasing, image, i);
    const Region box = differing(result, image);
    const double area = box.height * box.width / 4800.0;
    const auto nines = std::ranges::count(result.pixels, 9);
    ASSERT_EQ(nines, 3 * box.height * box.width);  // the entire box is erased
    ASSERT_EQ(nines + std::ranges::count(result.pixels, 200), std::ssize(result.pixels));
    if (nines == 0) continue;
    ++erased;
    min_area = std::min(min_area, area);
    max_area = std::max(max_area, area);
    tops.insert(box.top);
    const double ratio = static_cast<double>(box.height) / box.width;
    ASSERT_TRUE(ratio > 0.46 && ratio < 2.15) << ratio;
  }
  EXPECT_NEAR(erased, 1400, 100);
  EXPECT_NEAR(min_area, 0.1, 0.01);
  EXPECT_NEAR(max_area, 0.3, 0.01);
  EXPECT_GT(tops.size(), 35U);
}

TEST(RandomErasingTest, FillsWithNoise) {
  TestImage image({60, 80}, 3);
  std::ranges::fill(image.pixels, uint8_t{0});
  const auto erasing = transform(
      "random_erasing { probability: 1 min_scale: 0.3 max_scale: 0.33 min_ratio: 1 max_ratio: 1 "
      "noise: true }");
  const TestImage result = applied(*erasing, image);
  double sum = 0;
  int count = 0;
  for (const uint8_t pixel : result.pixels) sum += pixel, count += pixel != 0;
  EXPECT_NEAR(count, 0.315 * 4800 * 3, 350);
  EXPECT_NEAR(sum / count, 128, 6);
  EXPECT_NE(applied(*erasing, image, 1), result);
}

TEST(RandomErasingTest, LeavesImagesThatAreTooSmall) {
  const TestImage pixel = noisy({1, 1}, 3);
  EXPECT_EQ(applied(*transform("random_erasing { probability: 1 }"), pixel), pixel);
}

TEST(RandomTransformsTest, ArePureFunctionsOfTheSample) {
  const TestImage image = noisy({32, 32}, 3);
  for (const std::string text :
       {"color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }",
        "rand_augment {}", "trivial_augment {}", "random_erasing { probability: 1 noise: true }"}) {
    std::set<std::string> results;
    for (int i = 0; i < 20; ++i) {
      const TestImage first = applied(*transform(text), image, i);
      EXPECT_EQ(first, applied(*transform(text), image, i)) << text;
      results.insert(bytes_of(first));
    }
    EXPECT_GT(results.size(), 10U) << text;
  }
}

TEST(RandomTransformsTest, WorkOnGrayImages) {
  const TestImage image = noisy({32, 32}, 1);
  for (const std::string text :
       {"color_jitter { brightness: 0.4 saturation: 0.4 hue: 0.1 }", "rand_augment {}",
        "trivial_augment {}", "grayscale {}", "random_erasing { probability: 1 noise: true }"}) {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(applied(*transform(text), image, i).channels, 1);
  }
}

TEST(RandomTransformsTest, ErrorsNameTheField) {
  const auto error = [](const std::string& text) {
    return message<ConfigError>([&] { transform(text); });
  };
  EXPECT_EQ(error("color_jitter { hue: 0.7 }"),
            "data.transform[2].color_jitter.hue: 0.7 is not in [0, 0.5]");
  EXPECT_EQ(error("color_jitter { contrast: -1 }"),
            "data.transform[2].color_jitter.contrast: -1 is not in [0, 255]");
  EXPECT_EQ(error("rand_augment { magnitude: 31 }"),
            "data.transform[2].rand_augment.magnitude: 31 is not in [0, 30]");
  EXPECT_EQ(error("rand_augment { fill: 256 }"),
            "data.transform[2].rand_augment.fill: 256 is not in [0, 255]");
  EXPECT_THAT(error("rand_augment { operations: -1 }"), HasSubstr("rand_augment.operations: -1"));
  EXPECT_THAT(error("trivial_augment { fill: -1 }"), HasSubstr("trivial_augment.fill: -1"));
  EXPECT_THAT(error("grayscale { probability: 2 }"), HasSubstr("grayscale.probability: 2"));
  EXPECT_THAT(error("random_erasing { probability: nan }"),
              HasSubstr("random_erasing.probability"));
  EXPECT_THAT(error("random_erasing { max_scale: 2 }"), HasSubstr("random_erasing.max_scale: 2"));
  EXPECT_THAT(error("random_erasing { min_ratio: 0 }"), HasSubstr("random_erasing.min_ratio: 0"));
}

}  // namespace
}  // namespace trireme::data
