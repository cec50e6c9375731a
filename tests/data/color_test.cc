#include "data/images/color.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "data/images/affine.h"
#include "tests/data/goldens.h"

namespace trireme::data {
namespace {

using testing::golden;
using testing::noisy;
using testing::TestImage;

using Change = std::function<void(const ImageView&)>;

TestImage changed(TestImage image, const Change& change) {
  change(image.view());
  return image;
}

template <class F>
Change by(F f, float amount) {
  return [f, amount](const ImageView& image) { f(image, amount); };
}

const std::map<std::string, Change>& changes() {
  static const std::map<std::string, Change> changes = {
      {"brightness_0.0", by(adjust_brightness, 0)},
      {"brightness_0.6", by(adjust_brightness, 0.6F)},
      {"brightness_1.7", by(adjust_brightness, 1.7F)},
      {"contrast_0.0", by(adjust_contrast, 0)},
      {"contrast_0.6", by(adjust_contrast, 0.6F)},
      {"contrast_1.7", by(adjust_contrast, 1.7F)},
      {"saturation_0.0", by(adjust_saturation, 0)},
      {"saturation_0.6", by(adjust_saturation, 0.6F)},
      {"saturation_1.7", by(adjust_saturation, 1.7F)},
      {"sharpness_0.0", by(adjust_sharpness, 0)},
      {"sharpness_0.6", by(adjust_sharpness, 0.6F)},
      {"sharpness_1.7", by(adjust_sharpness, 1.7F)},
      {"hue_0.0", by(adjust_hue, 0)},
      {"hue_0.3", by(adjust_hue, 0.3F)},
      {"hue_-0.11", by(adjust_hue, -0.11F)},
      {"gray", make_gray},
      {"invert", by(solarize, 0)},
      {"posterize_3", by(posterize, 3)},
      {"solarize_128", by(solarize, 128)},
      {"autocontrast", autocontrast},
      {"equalize", equalize},
  };
  return changes;
}

TEST(ColorTest, MatchesPillowExactly) {
  for (const std::string image : {"color", "gray"}) {
    for (const auto& [name, change] : changes()) {
      EXPECT_TRUE(changed(golden(image), change) == golden(image + "_" + name))
          << image << " " << name;
    }
  }
  EXPECT_TRUE(changed(golden("dull"), autocontrast) == golden("dull_autocontrast"));
  EXPECT_TRUE(changed(golden("dull"), equalize) == golden("dull_equalize"));
}

TEST(ColorTest, ChangesOnlyTheView) {
  for (const auto& [name, change] : changes()) {
    const TestImage before = noisy({20, 30}, 3);
    TestImage full = before;
    const ImageView part = full.view().part({3, 4, 10, 20});
    const TestImage alone = changed(TestImage(part), change);
    change(part);
    EXPECT_EQ(TestImage(part), alone) << name;
    copy_pixels(TestImage(before).view().part({3, 4, 10, 20}), part);
    EXPECT_EQ(full, before) << name;
  }
}

TEST(ColorTest, NeutralAmountsChangeNothing) {
  const TestImage image = noisy({20, 30}, 3);
  EXPECT_EQ(changed(image, by(adjust_brightness, 1)), image);
  EXPECT_EQ(changed(image, by(adjust_contrast, 1)), image);
  EXPECT_EQ(changed(image, by(adjust_saturation, 1)), image);
  EXPECT_EQ(changed(image, by(adjust_sharpness, 1)), image);
  EXPECT_EQ(changed(image, by(posterize, 8)), image);
  EXPECT_EQ(changed(image, by(solarize, 256)), image);
  EXPECT_EQ(changed(changed(image, by(solarize, 0)), by(solarize, 0)), image);
}

TEST(ColorTest, UniformImagesDoNotChange) {
  for (const ImageSize size : {ImageSize{1, 1}, ImageSize{2, 9}, ImageSize{9, 2}}) {
    TestImage flat(size, 3);
    std::ranges::fill(flat.pixels, uint8_t{70});
    for (const Change& change :
         {Change(autocontrast), Change(equalize), by(adjust_contrast, 1.9F),
          by(adjust_sharpness, 2), by(adjust_saturation, 2), by(adjust_hue, 0.5F)}) {
      EXPECT_EQ(changed(flat, change), flat);
    }
  }
}

TestImage warped(TestImage from, const AffineMap& map, uint8_t fill) {
  TestImage to(from.size, from.channels);
  warp(from.view(), map, fill, to.view());
  return to;
}

TEST(AffineTest, TranslationMovesPixels) {
  for (const int channels : {1, 3}) {
    TestImage from = noisy({13, 17}, channels);
    TestImage moved = warped(from, translation_map(3, -2), 5);
    for (int y = 0; y < 13; ++y) {
      for (int x = 0; x < 17; ++x) {
        const bool inside = x >= 3 && y + 2 < 13;
        for (int c = 0; c < channels; ++c) {
          ASSERT_EQ(moved.at(y, x, c), inside ? from.at(y + 2, x - 3, c) : 5) << y << " " << x;
        }
      }
    }
  }
}

TEST(AffineTest, FourQuarterTurnsAreAFullTurn) {
  TestImage from = noisy({16, 16}, 3);
  TestImage quarter = warped(from, rotation_map(90, from.size), 0);
  EXPECT_EQ(quarter.at(15, 0, 1), from.at(0, 0, 1));  // counterclockwise
  TestImage turned = from;
  for (int i = 0; i < 4; ++i) turned = warped(turned, rotation_map(90, turned.size), 0);
  EXPECT_EQ(turned, from);
}

TEST(AffineTest, FillsOutsideTheImage) {
  const TestImage away = warped(noisy({10, 10}, 3), translation_map(1e6, 0), 7);
  EXPECT_TRUE(std::ranges::all_of(away.pixels, [](uint8_t p) { return p == 7; }));
}

}  // namespace
}  // namespace trireme::data
