#include "data/transforms/transform.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "data/transforms/pipeline.h"
#include "tests/data/images.h"

namespace trireme::data {
namespace {

using testing::config_of;
using testing::message;
using testing::noisy;
using testing::TestImage;

std::unique_ptr<Transform> transform(const std::string& text) {
  return make_transform(config_of("transform { " + text + " }").transform(0), "data.transform[0]");
}

Draws draws(int64_t sample = 0) { return Draws(1, 0, sample, 0); }

// Applies a transform to an image that the canvas borrows, and must not modify, or owns.
TestImage apply(const Transform& tested, TestImage image, int64_t sample = 0,
                bool borrowed = false) {
  const TestImage before = image;
  Canvas canvas(image.channels);
  TestImage output(tested.output_size(image.size).value(), image.channels);
  canvas.begin(output.view());
  canvas.expect_more_images(!tested.in_place());
  if (borrowed) {
    canvas.borrow(image.view());
  } else {
    const Canvas::Target target = canvas.allocate(image.size);
    copy_pixels(image.view(), target.image);
    canvas.commit(target);
  }
  canvas.expect_more_images(false);
  Draws drawn = draws(sample);
  tested.apply(canvas, drawn);
  canvas.finish();
  EXPECT_EQ(image, before);
  return output;
}

int mirrored(int at, int extent) {
  while (at < 0 || at >= extent) at = at < 0 ? -at : 2 * (extent - 1) - at;
  return at;
}

// Returns a region of an image that may extend beyond it.
TestImage part_of(TestImage from, const Region& region, int fill, bool reflect) {
  TestImage to(region.size(), from.channels);
  for (int y = 0; y < region.height; ++y) {
    for (int x = 0; x < region.width; ++x) {
      for (int c = 0; c < from.channels; ++c) {
        int at_y = region.top + y;
        int at_x = region.left + x;
        const bool inside =
            at_y >= 0 && at_y < from.size.height && at_x >= 0 && at_x < from.size.width;
        if (!inside && reflect) {
          at_y = mirrored(at_y, from.size.height);
          at_x = mirrored(at_x, from.size.width);
        }
        to.at(y, x, c) = inside || reflect ? from.at(at_y, at_x, c) : static_cast<uint8_t>(fill);
      }
    }
  }
  return to;
}

TEST(ResizeTest, PreservesTheAspectRatio) {
  const auto shorter = transform("resize { size: 256 }");
  EXPECT_EQ(shorter->output_size(ImageSize{375, 500}), (ImageSize{256, 341}));
  EXPECT_EQ(shorter->output_size(ImageSize{500, 375}), (ImageSize{341, 256}));
  EXPECT_EQ(shorter->output_size(ImageSize{100, 100}), (ImageSize{256, 256}));
  EXPECT_EQ(shorter->output_size(ImageSize{1, 3}), (ImageSize{256, 768}));
  EXPECT_EQ(shorter->output_size({}), std::nullopt);
  const auto both = transform("resize { size: [20, 30] }");
  EXPECT_EQ(both->output_size(ImageSize{375, 500}), (ImageSize{20, 30}));
  EXPECT_EQ(both->output_size({}), (ImageSize{20, 30}));
}

TEST(ResizeTest, MatchesTheResizer) {
  const std::pair<const char*, Filter> filters[] = {{"BILINEAR", Filter::kBilinear},
                                                    {"BICUBIC", Filter::kBicubic},
                                                    {"NEAREST", Filter::kNearest}};
  for (const auto& [name, filter] : filters) {
    TestImage from = noisy({40, 31}, 3);
    TestImage expected({16, 13}, 3);
    Resizer resizer;
    resizer.resize(from.view(), {0, 0, 40, 31}, expected.view(), filter);
    const auto resize = transform(std::string("resize { size: 13 interpolation: ") + name + " }");
    for (const bool borrowed : {false, true}) {
      EXPECT_EQ(apply(*resize, from, 0, borrowed), expected) << name;
    }
    EXPECT_EQ(apply(*transform("resize { size: 31 }"), from), from) << "the size is the same";
  }
}

TEST(CenterCropTest, RoundsHalvesToEven) {
  // Image sizes and the offset of the crop of 2 x 4.
  const struct {
    ImageSize size;
    int top, left;
  } cases[] = {{{2, 4}, 0, 0}, {{3, 5}, 0, 0},  {{5, 7}, 2, 2},  {{7, 9}, 2, 2},  {{8, 12}, 3, 4},
               {{1, 9}, 0, 2}, {{9, 1}, 4, -1}, {{1, 1}, 0, -1}, {{2, 2}, 0, -1}, {{1, 3}, 0, 0}};
  for (const auto& each : cases) {
    for (const int channels : {1, 3}) {
      const TestImage from = noisy(each.size, channels);
      const TestImage expected = part_of(from, {each.top, each.left, 2, 4}, 0, false);
      const auto crop = transform("center_crop { size: [2, 4] }");
      EXPECT_EQ(apply(*crop, from), expected) << each.size.height << " " << each.size.width;
      EXPECT_EQ(apply(*crop, from, 0, true), expected);
    }
  }
  EXPECT_FALSE(transform("center_crop { size: 2 }")->random());
}

TEST(PadTest, PadsAllSides) {
  for (const ImageSize size : {ImageSize{3, 5}, ImageSize{1, 1}, ImageSize{2, 7}}) {
    for (const int channels : {1, 3}) {
      const TestImage from = noisy(size, channels);
      const int h = size.height;
      const int w = size.width;
      EXPECT_EQ(apply(*transform("pad { padding: 2 fill: 9 }"), from),
                part_of(from, {-2, -2, h + 4, w + 4}, 9, false));
      EXPECT_EQ(apply(*transform("pad { padding: [1, 3] }"), from),
                part_of(from, {-3, -1, h + 6, w + 2}, 0, false));
      EXPECT_EQ(apply(*transform("pad { padding: [1, 0, 4, 2] }"), from, 0, true),
                part_of(from, {0, -1, h + 2, w + 5}, 0, false));
      if (h == 1) continue;  // mirrored() does not terminate
      EXPECT_EQ(apply(*transform("pad { padding: [1, 2, 3, 11] reflect: true }"), from),
                part_of(from, {-2, -1, h + 13, w + 4}, 0, true));
    }
  }
  EXPECT_EQ(apply(*transform("pad { padding: 1 reflect: true }"), noisy({1, 1}, 1)).pixels,
            std::vector<uint8_t>(9, noisy({1, 1}, 1).pixels[0]));
}

TEST(RandomCropTest, PositionsAreEquallyLikely) {
  for (const char* border : {"", "padding: 2 fill: 7", "padding: 2 reflect: true"}) {
    const auto crop = transform(std::string("random_crop { size: [3, 5] ") + border + " }");
    const int padding = *border ? 2 : 0;
    const TestImage from = noisy({5, 6}, 3);
    // How often each possible result occurs.
    std::map<std::string, int> seen;
    const auto key = [](const TestImage& p) {
      return std::string(p.pixels.begin(), p.pixels.end());
    };
    for (int top = -padding; top + 3 <= 5 + padding; ++top) {
      for (int left = -padding; left + 5 <= 6 + padding; ++left) {
        const bool reflect = std::string(border).ends_with("true");
        seen[key(part_of(from, {top, left, 3, 5}, 7, reflect))] = 0;
      }
    }
    const int places = (5 + 2 * padding - 2) * (6 + 2 * padding - 4);
    ASSERT_EQ(std::ssize(seen), places);
    for (int64_t i = 0; i < 200 * places; ++i) {
      const auto found = seen.find(key(apply(*crop, from, i, i % 2 == 0)));
      ASSERT_NE(found, seen.end());
      ++found->second;
    }
    for (const auto& [place, count] : seen) EXPECT_NEAR(count, 200, 70) << border;
  }
}

TEST(RandomCropTest, RejectsImagesThatAreTooSmall) {
  EXPECT_SAYS(message<ImageError>([] {
                apply(*transform("random_crop { size: 8 padding: 1 }"), noisy({6, 5}, 1));
              }),
              "is 6 x 5 (height x width), padded by 1, which is smaller than the 8 x 8");
  EXPECT_FALSE(transform("random_crop { size: 8 }")->needs({6, 9}, draws()).has_value());
}

TEST(RandomResizedCropTest, AreasAndShapesMatchTorchvision) {
  const auto crop = transform("random_resized_crop { size: 32 }");
  constexpr int kMany = 20000;
  double area = 0;
  double log_ratio = 0;
  double log_ratio_squared = 0;
  double middle = 0;
  int small = 0;
  for (int64_t i = 0; i < kMany; ++i) {
    const Region r = crop->needs({400, 500}, draws(i))->region;
    ASSERT_GE(std::min(r.top, r.left), 0);
    ASSERT_LE(r.top + r.height, 400);
    ASSERT_LE(r.left + r.width, 500);
    const double share = r.height * r.width / 200000.0;
    const double ratio = static_cast<double>(r.width) / r.height;
    ASSERT_GE(share, 0.079);
    ASSERT_GE(ratio, 0.74);
    ASSERT_LE(ratio, 1.35);
    area += share / kMany;
    log_ratio += std::log(ratio) / kMany;
    log_ratio_squared += std::log(ratio) * std::log(ratio) / kMany;
    middle += (r.left + r.width / 2.0) / 500 / kMany;
    if (share < 0.31) ++small;
  }
  // Values from torchvision. Large areas of some shapes do not fit and are drawn again.
  EXPECT_NEAR(area, 0.4536, 0.006);
  EXPECT_NEAR(small, 0.317 * kMany, 0.01 * kMany);
  EXPECT_NEAR(log_ratio, 0.0283, 0.004);
  EXPECT_NEAR(log_ratio_squared, 0.0273, 0.001);
  EXPECT_NEAR(middle, 0.5, 0.004);
}

TEST(RandomResizedCropTest, CropsTheCenterIfNoShapeFits) {
  const auto crop = transform("random_resized_crop { size: 32 min_scale: 0.9 }");
  EXPECT_EQ(crop->needs({10, 1000}, draws())->region, (Region{0, 493, 10, 13}));
  EXPECT_EQ(crop->needs({1000, 12}, draws())->region, (Region{492, 0, 16, 12}));
  EXPECT_EQ(crop->needs({1, 1}, draws())->region, (Region{0, 0, 1, 1}));
}

TEST(RandomResizedCropTest, ResizesOnlyItsRegion) {
  const auto crop = transform("random_resized_crop { size: [9, 11] interpolation: BICUBIC }");
  TestImage from = noisy({60, 50}, 3);
  for (int64_t i = 0; i < 20; ++i) {
    const Region r = crop->needs(from.size, draws(i))->region;
    TestImage part = part_of(from, r, 0, false);
    TestImage expected({9, 11}, 3);
    Resizer().resize(part.view(),
                     {0, 0, static_cast<double>(r.height), static_cast<double>(r.width)},
                     expected.view(), Filter::kBicubic);
    EXPECT_EQ(apply(*crop, from, i), expected);
  }
}

TEST(FlipTest, FlipsImagesOfAllWidths) {
  for (const int channels : {1, 3}) {
    for (const int width : {1, 2, 3, 5, 6, 7, 10, 11, 12, 31, 32, 80, 511, 512, 513, 1100}) {
      const TestImage from = noisy({3, width}, channels);
      TestImage across(from.size, channels);
      TestImage down(from.size, channels);
      for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < width; ++x) {
          for (int c = 0; c < channels; ++c) {
            across.at(y, width - 1 - x, c) = TestImage(from).at(y, x, c);
            down.at(2 - y, x, c) = TestImage(from).at(y, x, c);
          }
        }
      }
      for (const bool borrowed : {false, true}) {
        EXPECT_EQ(apply(*transform("horizontal_flip { probability: 1 }"), from, 0, borrowed),
                  across)
            << width;
        EXPECT_EQ(apply(*transform("vertical_flip { probability: 1 }"), from, 0, borrowed), down);
        EXPECT_EQ(apply(*transform("vertical_flip { probability: 0 }"), from, 0, borrowed), from);
      }
    }
  }
}

TEST(FlipTest, IsAppliedWithTheGivenProbability) {
  const TestImage from = noisy({1, 8}, 3);
  for (const double probability : {0.1, 0.5}) {
    const auto flip =
        transform("horizontal_flip { probability: " + std::to_string(probability) + " }");
    EXPECT_TRUE(flip->random());
    int flipped = 0;
    for (int64_t i = 0; i < 2000; ++i) flipped += apply(*flip, from, i) == from ? 0 : 1;
    EXPECT_NEAR(flipped, 2000 * probability, 80);
  }
  EXPECT_FALSE(transform("horizontal_flip { probability: 1 }")->random());
}

TEST(CanvasTest, AllocatesTheLastImageInTheOutput) {
  TestImage output({4, 4}, 3);
  Canvas canvas(3);
  canvas.begin(output.view());
  EXPECT_EQ(canvas.allocate({4, 4}).image.pixels, output.pixels.data()) << "no copy is needed";
  canvas.expect_more_images(true);
  Canvas::Target target = canvas.allocate({4, 4});
  EXPECT_NE(target.image.pixels, output.pixels.data());
  canvas.commit(target);
  const uint8_t* first = canvas.source().pixels;
  canvas.expect_more_images(false);
  EXPECT_FALSE(canvas.prefers_in_place());
  target = canvas.allocate({4, 4});
  EXPECT_EQ(target.image.pixels, output.pixels.data());
  canvas.commit(target);
  EXPECT_TRUE(canvas.prefers_in_place());
  target = canvas.allocate({4, 4});
  EXPECT_NE(target.image.pixels, output.pixels.data()) << "the output holds the current image";
  std::fill_n(target.image.pixels, 48, uint8_t{5});
  canvas.commit(target);
  canvas.finish();
  EXPECT_EQ(output.pixels, std::vector<uint8_t>(48, 5));
  canvas.begin(output.view());
  canvas.expect_more_images(true);
  EXPECT_EQ(canvas.allocate({4, 4}).image.pixels, first) << "memory is reused";
}

TEST(CanvasTest, DoesNotModifyABorrowedImage) {
  TestImage output({2, 2}, 1);
  TestImage image = noisy({4, 4}, 1);
  const TestImage before = image;
  Canvas canvas(1);
  canvas.begin(output.view());
  canvas.borrow(image.view());
  EXPECT_EQ(canvas.source().pixels, image.pixels.data());
  canvas.crop({1, 1, 2, 2});
  canvas.image().pixels[0] ^= 255;
  canvas.finish();
  EXPECT_EQ(image, before);
  EXPECT_EQ(output.at(0, 0, 0), image.at(1, 1, 0) ^ 255);
  EXPECT_EQ(output.at(1, 1, 0), image.at(2, 2, 0));
}

TEST(CanvasTest, RejectsAnotherSize) {
  TestImage output({2, 2}, 1);
  Canvas canvas(1);
  canvas.begin(output.view());
  canvas.commit(canvas.allocate({3, 2}));
  EXPECT_SAYS(message<ImageError>([&] { canvas.finish(); }),
              "is 3 x 2 (height x width) after its transforms, others are 2 x 2");
}

std::string config_error(const std::string& text) {
  return message<ConfigError>([&] { transform(text); });
}

TEST(TransformConfigTest, ErrorsNameTheField) {
  EXPECT_SAYS(config_error(""), "data.transform[0]: has no transform");
  EXPECT_SAYS(config_error("resize {}"), "data.transform[0].resize.size: has 0 values");
  EXPECT_SAYS(config_error("resize { size: [1, 2, 3] }"), "resize.size: has 3 values");
  EXPECT_SAYS(config_error("center_crop { size: [8, 0] }"),
              "data.transform[0].center_crop.size: 0 is not in [1, 65535]");
  EXPECT_SAYS(config_error("random_crop { size: 70000 }"), "random_crop.size: 70000 is not in");
  EXPECT_SAYS(config_error("random_crop { size: 8 padding: -1 }"),
              "random_crop.padding: -1 is not in [0, 65535]");
  EXPECT_SAYS(config_error("random_crop { size: 8 fill: 256 }"),
              "random_crop.fill: 256 is not in [0, 255]");
  EXPECT_SAYS(config_error("pad { padding: [1, 2, 3] }"),
              "data.transform[0].pad.padding: has 3 values; 1, 2 or 4 are needed");
  EXPECT_SAYS(config_error("pad {}"), "pad.padding: has 0 values");
  EXPECT_SAYS(config_error("pad { padding: 1 fill: -1 }"), "pad.fill: -1 is not in [0, 255]");
  EXPECT_SAYS(config_error("horizontal_flip { probability: 1.5 }"),
              "horizontal_flip.probability: 1.5 is not in [0, 1]");
  EXPECT_SAYS(config_error("vertical_flip { probability: nan }"),
              "vertical_flip.probability: nan is not in [0, 1]");
  EXPECT_SAYS(config_error("random_resized_crop { size: 9 min_scale: 0 }"),
              "data.transform[0].random_resized_crop.min_scale: 0 is not above 0");
  EXPECT_SAYS(config_error("random_resized_crop { size: 9 max_scale: 1.5 }"),
              "random_resized_crop.max_scale: 1.5 is not in [min_scale, 1] = [0.08, 1]");
  EXPECT_SAYS(config_error("random_resized_crop { size: 9 min_ratio: 2 max_ratio: 1 }"),
              "random_resized_crop.max_ratio: 1 is not in [min_ratio, 1000] = [2, 1000]");
  EXPECT_SAYS(config_error("random_resized_crop { size: 9 max_ratio: nan }"),
              "random_resized_crop.max_ratio: nan is not in");
}

TEST(PipelineTest, EvaluationIsNeverRandom) {
  const DataConfig config = config_of(
      "transform { resize { size: 9 } } transform { horizontal_flip {} } transform { pad { "
      "padding: 1 } } eval_transform { resize { size: 9 } } eval_transform { random_crop { size: 8 "
      "} }");
  const Pipeline training(config, Part::kTraining, 1);
  EXPECT_EQ(training.size(), 3);
  EXPECT_EQ(training.fixed(), 1);
  EXPECT_EQ(training.output_size(ImageSize{9, 18}, 0, 3), (ImageSize{11, 20}));
  EXPECT_EQ(training.output_size(std::nullopt, 0, 3), std::nullopt);
  EXPECT_SAYS(message<ConfigError>([&] { Pipeline(config, Part::kEvaluation, 1); }),
              "data.eval_transform[1]: is random; evaluation must see the same images each time");
}

}  // namespace
}  // namespace trireme::data
