// Transforms that draw colors, operations and boxes. What the operations do is in color_test.cc.
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

TestImage applied(const Transform& to_do, TestImage image, int64_t sample = 0) {
  Canvas canvas(image.channels);
  TestImage output(image.size, image.channels);
  canvas.begin(output.view());
  canvas.show(image.view());
  Draws draws(1, 0, sample, 0);
  to_do.apply(canvas, draws);
  canvas.finish();
  return output;
}

// As a key.
std::string bytes_of(const TestImage& image) { return {image.pixels.begin(), image.pixels.end()}; }

const std::vector<std::string> kOneWay = {"Identity", "Posterize", "Solarize", "AutoContrast",
                                          "Equalize"};
const std::vector<std::string> kTwoWays = {"ShearX",     "ShearY",   "TranslateX",
                                           "TranslateY", "Rotate",   "Brightness",
                                           "Color",      "Contrast", "Sharpness"};

// Which images torchvision makes of "small", and the operations (with their signs) that do.
std::map<std::string, std::set<std::string>> results_of_torchvision(const std::string& name) {
  std::map<std::string, std::set<std::string>> results;
  const auto add = [&](const std::string& operation) {
    results[bytes_of(golden(name + "_" + operation))].insert(operation);
  };
  for (const std::string& operation : kOneWay) add(operation + "_+");
  for (const std::string& operation : kTwoWays) add(operation + "_+"), add(operation + "_-");
  return results;
}

TEST(RandAugmentTest, DrawsTheOperationsOfTorchvisionAlike) {
  const auto results = results_of_torchvision("rand");
  const auto augment = transform("rand_augment { operations: 1 magnitude: 9 fill: 77 }");
  constexpr int kSamples = 14000;
  std::map<std::set<std::string>, int> counts;
  for (int i = 0; i < kSamples; ++i) {
    const auto found = results.find(bytes_of(applied(*augment, golden("small"), i)));
    ASSERT_NE(found, results.end()) << "sample " << i << " is none of torchvision's";
    ++counts[found->second];
  }
  for (const auto& [pixels, operations] : results) {
    double share = 0;  // several operations may do the same, e.g. nothing
    for (const std::string& operation : operations) {
      const bool both = std::ranges::count(kTwoWays, operation.substr(0, operation.size() - 2)) > 0;
      share += (both ? 0.5 : 1) / 14;
    }
    const double deviation = std::sqrt(kSamples * share * (1 - share));
    EXPECT_NEAR(counts[operations], kSamples * share, 4.5 * deviation) << *operations.begin();
  }
}

TEST(RandAugmentTest, OperationsFollowOneAnother) {
  const auto none = transform("rand_augment { operations: 0 }");
  EXPECT_FALSE(none->random());
  EXPECT_EQ(applied(*none, golden("small")), golden("small"));
  // Two operations make far more different images than one.
  std::set<std::string> made;
  const auto two = transform("rand_augment { operations: 2 }");
  EXPECT_TRUE(two->random());
  for (int i = 0; i < 1000; ++i) made.insert(bytes_of(applied(*two, golden("small"), i)));
  EXPECT_GT(made.size(), 150U);
}

TEST(TrivialAugmentTest, MakesWhatTorchvisionMakes) {
  // Of all strengths, these are some: each must turn up.
  auto missing = results_of_torchvision("trivial");
  const auto augment = transform("trivial_augment { fill: 77 }");
  EXPECT_TRUE(augment->random());
  for (int i = 0; i < 20000 && !missing.empty(); ++i) {
    missing.erase(bytes_of(applied(*augment, golden("small"), i)));
  }
  for (const auto& [pixels, operations] : missing) ADD_FAILURE() << *operations.begin();
}

TEST(ColorJitterTest, FactorsFillTheirRange) {
  const auto jitter = transform("color_jitter { brightness: 0.4 }");
  TestImage flat({4, 4}, 3);
  std::ranges::fill(flat.pixels, uint8_t{100});
  int least = 255;
  int most = 0;
  for (int i = 0; i < 1000; ++i) {
    const TestImage made = applied(*jitter, flat, i);
    least = std::min<int>(least, made.pixels[0]);
    most = std::max<int>(most, made.pixels[0]);
  }
  EXPECT_GE(least, 59);
  EXPECT_LE(least, 62);
  EXPECT_GE(most, 138);
  EXPECT_LE(most, 140);
}

TEST(ColorJitterTest, EachPartDoesWhatItIsFor) {
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
  // Of 255 and 55, with factors b of brightness in [0.9, 1.1] and c of contrast in [0, 2]: contrast
  // last keeps the sum at 310 b or takes the first to 255. Brightness last makes it 255 b + max(0,
  // 155 - 100 c) b; b < 1 and a sum below 270, of which this is the sign, come in 3/16 of the
  // draws.
  const auto jitter = transform("color_jitter { brightness: 0.1 contrast: 1 }");
  TestImage image({1, 2}, 1);
  image.pixels = {255, 55};
  constexpr int kSamples = 4000;
  int brightness_last = 0;
  for (int i = 0; i < kSamples; ++i) {
    const TestImage made = applied(*jitter, image, i);
    brightness_last += made.pixels[0] < 255 && made.pixels[0] + made.pixels[1] < 270 ? 1 : 0;
  }
  EXPECT_NEAR(brightness_last, kSamples * 3 / 16 / 2, 90);
}

TEST(GrayscaleTest, ByChance) {
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

// Where the pixels are that have another value.
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
  double least = 1;
  double most = 0;
  std::set<int> tops;
  for (int i = 0; i < 2000; ++i) {
    const TestImage made = applied(*erasing, image, i);
    const Region box = differing(made, image);
    const double area = box.height * box.width / 4800.0;
    const auto nines = std::ranges::count(made.pixels, 9);
    ASSERT_EQ(nines, 3 * box.height * box.width);  // the box is all erased
    ASSERT_EQ(nines + std::ranges::count(made.pixels, 200), std::ssize(made.pixels));
    if (nines == 0) continue;
    ++erased;
    least = std::min(least, area);
    most = std::max(most, area);
    tops.insert(box.top);
    const double ratio = static_cast<double>(box.height) / box.width;
    ASSERT_TRUE(ratio > 0.46 && ratio < 2.15) << ratio;
  }
  EXPECT_NEAR(erased, 1400, 100);
  EXPECT_NEAR(least, 0.1, 0.01);
  EXPECT_NEAR(most, 0.3, 0.01);
  EXPECT_GT(tops.size(), 35U);
}

TEST(RandomErasingTest, WithNoise) {
  TestImage image({60, 80}, 3);
  std::ranges::fill(image.pixels, uint8_t{0});
  const auto erasing = transform(
      "random_erasing { probability: 1 min_scale: 0.3 max_scale: 0.33 min_ratio: 1 max_ratio: 1 "
      "noise: true }");
  const TestImage made = applied(*erasing, image);
  double sum = 0;
  int count = 0;
  for (const uint8_t pixel : made.pixels) sum += pixel, count += pixel != 0;
  EXPECT_NEAR(count, 0.315 * 4800 * 3, 350);
  EXPECT_NEAR(sum / count, 128, 6);
  EXPECT_NE(applied(*erasing, image, 1), made);
}

TEST(RandomErasingTest, WhatDoesNotFitIsLeft) {
  const TestImage pixel = noisy({1, 1}, 3);
  EXPECT_EQ(applied(*transform("random_erasing { probability: 1 }"), pixel), pixel);
}

TEST(DrawnTransformsTest, ArePureFunctionsOfTheSample) {
  const TestImage image = noisy({32, 32}, 3);
  for (const std::string text :
       {"color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }",
        "rand_augment {}", "trivial_augment {}", "random_erasing { probability: 1 noise: true }"}) {
    std::set<std::string> made;
    for (int i = 0; i < 20; ++i) {
      const TestImage first = applied(*transform(text), image, i);
      EXPECT_EQ(first, applied(*transform(text), image, i)) << text;
      made.insert(bytes_of(first));
    }
    EXPECT_GT(made.size(), 10U) << text;
  }
}

TEST(DrawnTransformsTest, GrayImagesGoToo) {
  const TestImage image = noisy({32, 32}, 1);
  for (const std::string text :
       {"color_jitter { brightness: 0.4 saturation: 0.4 hue: 0.1 }", "rand_augment {}",
        "trivial_augment {}", "grayscale {}", "random_erasing { probability: 1 noise: true }"}) {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(applied(*transform(text), image, i).channels, 1);
  }
}

TEST(DrawnTransformsTest, BadFieldsAreNamed) {
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
