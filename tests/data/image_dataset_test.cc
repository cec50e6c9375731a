#include "data/image_dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "tests/data/exif.h"
#include "tests/data/images.h"

namespace trireme::data {
namespace {

using testing::config_of;
using ::testing::ElementsAre;
using testing::fakes;
using testing::Folder;
using testing::image_of;
using testing::images;
using testing::message;
using testing::noisy;
using testing::sample_of;
using testing::smooth;
using testing::TestImage;

std::vector<TestImage> many(int count, ImageSize size) {
  std::vector<TestImage> result;
  for (int i = 0; i < count; ++i) result.push_back(noisy(size, 3, static_cast<uint32_t>(i)));
  return result;
}

std::unique_ptr<testing::FakeRecords> photographs(int count, ImageSize size) {
  auto records = std::make_unique<testing::FakeRecords>();
  for (int i = 0; i < count; ++i) {
    records->files.push_back(encode_jpeg(smooth(size, 3, i).view(), 90));
  }
  return records;
}

TEST(ImageDatasetTest, ReturnsImagesUnchangedWithoutTransforms) {
  const std::vector<TestImage> originals = many(9, {5, 6});
  const auto dataset = images(fakes(originals), "");
  ASSERT_EQ(dataset->size(), 9);
  EXPECT_EQ(dataset->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 5, 6}, Layout::channels_last()}));
  EXPECT_EQ(dataset->spec().target, (TensorSpec{DType::kI32, Shape{}, Layout::row_major()}));
  EXPECT_EQ(dataset->spec().classes, 7);
  EXPECT_FLOAT_EQ(dataset->spec().scale, 1.0F / 255);
  EXPECT_EQ(dataset->description(), "fakes: 9 samples of u8 [3, 5, 6] in 7 classes");
  EXPECT_EQ(dataset->where(4), "fake: 4");
  EXPECT_THAT(dataset->class_names(), ElementsAre("a", "b"));
  EXPECT_FALSE(dataset->in_memory());
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(image_of(*dataset, {i, 3}), originals[static_cast<size_t>(i)]);
    EXPECT_EQ(sample_of(*dataset, {i}).label(), i % 7);
  }
  EXPECT_SAYS(message<DataError>([&] { sample_of(*dataset, {9}); }),
              "fakes: sample 9 is out of range; the last one is 8");
}

// With all transforms that decode only a part of an image, possibly at a reduced size.
TEST(ImageDatasetTest, TurnsPhotographsBeforeTheirTransforms) {
  const auto turned = [](int orientation, bool upright) {
    auto records = std::make_unique<testing::FakeRecords>();
    const auto stored = encode_png(noisy({40, 56}, 3).view());
    const auto file = testing::with_orientation(stored, orientation);
    if (!upright) {
      records->files.push_back(file);
      return records;
    }
    Decoder decoder;
    TestImage image(decoder.open(file).size, 3);
    decoder.plan({3, {0, 0, image.size.height, image.size.width}, 1});
    decoder.decode(image.view());
    records->files.push_back(encode_png(image.view()));
    return records;
  };
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const char* transforms :
         {"", "transform { center_crop { size: [9, 20] } }", "transform { resize { size: 13 } }",
          "transform { random_crop { size: 16 } } transform { horizontal_flip {} }",
          "transform { random_resized_crop { size: 11 } }"}) {
      const auto expected = images(turned(orientation, true), transforms);
      const auto dataset = images(turned(orientation, false), transforms);
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        EXPECT_EQ(image_of(*dataset, {0, epoch}), image_of(*expected, {0, epoch}))
            << orientation << ": " << transforms;
      }
      EXPECT_EQ(dataset->stored_image(0)->size, expected->stored_image(0)->size);
    }
  }
  const auto ignoring = images(turned(6, false), "decode { apply_exif_orientation: false }");
  EXPECT_EQ(image_of(*ignoring, {0}), noisy({40, 56}, 3));
}

// The decoder reduces the image four times, and its sides are no multiples of that.
TEST(ImageDatasetTest, TurnsPhotographsThatAreDecodedAtAReducedSize) {
  const auto resized = [](int orientation, const std::string& size) {
    auto records = std::make_unique<testing::FakeRecords>();
    const auto file = encode_jpeg(smooth({203, 301}, 3).view(), 95);
    records->files.push_back(testing::with_orientation(file, orientation));
    const std::string resize = "transform { resize { size: " + size + " } }";
    return image_of(*images(std::move(records), resize), {0});
  };
  TestImage upright = resized(1, "[25, 37]");
  for (int orientation = 2; orientation <= 8; ++orientation) {
    auto expected = std::make_unique<testing::FakeRecords>();
    expected->files.push_back(testing::with_orientation(encode_png(upright.view()), orientation));
    const TestImage a = image_of(*images(std::move(expected), ""), {0});
    const TestImage b = resized(orientation, orientation >= 5 ? "[37, 25]" : "[25, 37]");
    ASSERT_EQ(a.size, b.size);
    int difference = 0;
    for (size_t i = 0; i < a.pixels.size(); ++i) {
      difference = std::max(difference, std::abs(a.pixels[i] - b.pixels[i]));
    }
    EXPECT_LE(difference, 1) << orientation;
  }
}

TEST(ImageDatasetTest, DecodesGrayImagesToOneChannel) {
  const TestImage gray = noisy({4, 4}, 1);
  const auto dataset = images(fakes({gray}), "decode { channels: 1 }");
  EXPECT_EQ(dataset->spec().input.shape, (Shape{1, 4, 4}));
  EXPECT_EQ(image_of(*dataset, {0}), gray);
  EXPECT_SAYS(message<ConfigError>([] { images(fakes({}), "decode { channels: 2 }"); }),
              "data.decode.channels: 2 is neither 1 nor 3");
}

TEST(ImageDatasetTest, AnImageOfAnotherSizeIsABadRecord) {
  std::vector<TestImage> originals = many(2, {5, 6});
  originals.push_back(noisy({7, 6}, 3));
  const std::string error = message<DataError>(
      [&] { sample_of(*images(fakes(originals), "transform { pad { padding: 1 } }"), {2}); });
  EXPECT_SAYS(error, "fake: 2: is 9 x 8 (height x width) after its transforms, others are 7 x 8");
  EXPECT_SAYS(error, "add a resize or crop to one size");
  const auto cropped = images(fakes(originals), "transform { center_crop { size: 4 } }");
  EXPECT_EQ(image_of(*cropped, {2}).at(0, 0, 1), originals[2].at(2, 1, 1));
}

TEST(ImageDatasetTest, ADamagedImageIsABadRecord) {
  auto records = fakes(many(3, {5, 6}));
  records->files[1].resize(records->files[1].size() / 2);
  records->files[2] = {1, 2, 3};
  const auto dataset = images(std::move(records), "");
  EXPECT_SAYS(message<DataError>([&] { sample_of(*dataset, {1}); }), "fake: 1: ");
  EXPECT_SAYS(message<DataError>([&] { sample_of(*dataset, {2}); }), "fake: 2: ");
  EXPECT_EQ(image_of(*dataset, {0}), many(1, {5, 6})[0]) << "other images can still be read";
}

TEST(ImageDatasetTest, AnImageWithTooManyPixelsIsABadRecord) {
  auto records = fakes(many(2, {5, 6}));
  records->files.push_back(encode_png(noisy({50, 60}, 3, 0).view()));
  const auto dataset = images(std::move(records),
                              "decode { max_pixels: 2999 } transform { center_crop { size: 4 } }");
  EXPECT_NO_THROW(sample_of(*dataset, {1}));
  EXPECT_EQ(message<DataError>([&] { sample_of(*dataset, {2}); }),
            "fake: 2: the image has 50x60 pixels, more than the maximum of 2999 "
            "(data.decode.max_pixels)");
  for (const char* wrong : {"0", "268435457"}) {
    EXPECT_SAYS(message<ConfigError>([&] {
                  images(fakes(many(1, {5, 6})), fmt::format("decode {{ max_pixels: {} }}", wrong));
                }),
                std::string("data.decode.max_pixels: ") + wrong + " is not in [1, 268435456]");
  }
}

TEST(ImageDatasetTest, TakesTheSizeFromTheFirstImage) {
  auto records = fakes(many(3, {5, 6}));
  records->files[0] = {1, 2, 3};
  const auto copy = [&] {
    auto other = std::make_unique<testing::FakeRecords>();
    other->files = records->files;
    return other;
  };
  EXPECT_SAYS(message<DataError>([&] { images(copy(), ""); }), "fake: 0: ");
  const auto skipping = images(copy(), "on_bad_record: SKIP max_bad_records: 1");
  EXPECT_EQ(skipping->spec().input.shape, (Shape{3, 5, 6}));
  EXPECT_SAYS(message<DataError>([&] { images(copy(), "on_bad_record: SKIP max_bad_records: 0"); }),
              "fake: 0: ");
  // Without a limit, as for `trireme data stats`.
  EXPECT_NO_THROW(images(copy(), "on_bad_record: SKIP max_bad_records: 9223372036854775807"));
  auto unread = copy();
  const testing::FakeRecords& counted = *unread;
  const auto known =
      images(std::move(unread), "transform { random_resized_crop { size: [8, 9] } }");
  EXPECT_EQ(known->spec().input.shape, (Shape{3, 8, 9}));
  EXPECT_EQ(counted.reads, 0) << "the size follows from the transforms";
}

constexpr const char* kAugmented =
    "transform { random_resized_crop { size: [16, 20] } } transform { horizontal_flip {} } "
    "transform { random_crop { size: 16 padding: 2 } } transform { vertical_flip {} } "
    "decode { shrink: false crop: false } ";

TEST(ImageDatasetTest, SamplesAreAFunctionOfSeedEpochAndIndex) {
  const auto dataset = images(photographs(12, {60, 80}), kAugmented);
  std::vector<TestImage> expected;
  for (int64_t i = 0; i < 24; ++i) expected.push_back(image_of(*dataset, {i % 12, i / 12}));
  for (int64_t i = 0; i < 12; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_NE(expected[at], expected[at + 12]) << "another epoch";
  }
  const auto again = images(photographs(12, {60, 80}), kAugmented);
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t k = 0; k < 96; ++k) {
        const int64_t i = (k * 7 + thread * 5) % 24;
        EXPECT_EQ(image_of(*again, {i % 12, i / 12}), expected[static_cast<size_t>(i)]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto other = images(photographs(12, {60, 80}), kAugmented, Part::kTraining, 2);
  EXPECT_NE(image_of(*other, {3}), expected[3]) << "another seed";
}

TEST(ImageDatasetTest, AppliesTransformsInOrder) {
  const TestImage original = noisy({8, 8}, 3);
  const auto dataset = images(fakes({original}),
                              "transform { center_crop { size: 4 } } transform { pad { padding: 1 "
                              "fill: 9 } } transform { horizontal_flip { probability: 1 } }");
  TestImage result = image_of(*dataset, {0});
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 6; ++x) {
      const bool inside = y > 0 && y < 5 && x > 0 && x < 5;
      EXPECT_EQ(result.at(y, x, 2), inside ? TestImage(original).at(y + 1, 6 - x, 2) : 9);
    }
  }
}

// The difference between partial or reduced decoding and decoding in full.
struct Difference {
  double mean = 0;
  int max = 0;
};
Difference difference(const std::string& decode, const std::string& transforms) {
  const auto full = images(photographs(6, {333, 501}), transforms +
                                                           "decode { shrink: false crop: "
                                                           "false }");
  const auto part = images(photographs(6, {333, 501}), transforms + decode);
  Difference all;
  double count = 0;
  for (int64_t i = 0; i < 30; ++i) {
    const TestImage a = image_of(*full, {i % 6, i / 6});
    const TestImage b = image_of(*part, {i % 6, i / 6});
    for (size_t k = 0; k < a.pixels.size(); ++k) {
      const int d = std::abs(a.pixels[k] - b.pixels[k]);
      all.mean += d;
      all.max = std::max(all.max, d);
      ++count;
    }
  }
  all.mean /= count;
  return all;
}

TEST(ImageDatasetTest, DecodingOnlyTheCropChangesNothing) {
  for (const char* transform : {"random_resized_crop { size: 64 }", "random_crop { size: 100 }",
                                "center_crop { size: 99 }", "center_crop { size: 400 }"}) {
    const std::string text = std::string("transform { ") + transform + " } ";
    EXPECT_EQ(difference("decode { shrink: false crop: true }", text).max, 0) << transform;
  }
}

TEST(ImageDatasetTest, DecodingAtReducedSizeChangesLittle) {
  for (const char* transform :
       {"random_resized_crop { size: 32 }", "resize { size: 40 }", "resize { size: [41, 160] }",
        "random_resized_crop { size: 20 interpolation: BICUBIC }"}) {
    for (const char* decode : {"decode { crop: false }", ""}) {
      const Difference d = difference(
          decode, std::string("transform { ") + transform + " } transform { horizontal_flip {} } ");
      EXPECT_GT(d.mean, 0) << "not decoded at reduced size: " << transform;
      EXPECT_LT(d.mean, 1.3) << transform << decode;
      EXPECT_LE(d.max, 12) << transform << decode;
    }
  }
  const std::string nearest = "transform { resize { size: 40 interpolation: NEAREST } } ";
  EXPECT_EQ(difference("", nearest).max, 0);
}

TEST(WithTransformsTest, TransformsDecodedImages) {
  Folder folder;
  const std::string planes = testing::pixels(2 * 3 * 4 * 5);
  folder.write("x", testing::idx({2, 3, 4, 5}, planes));
  folder.write("y", testing::idx({2}, std::string{1, 2}));
  const std::string format =
      "idx { train_images: 'x' train_labels: 'y' eval_images: 'x' "
      "eval_labels: 'y' } ";
  const auto flipped = open_dataset(
      folder.config(format + "transform { horizontal_flip { probability: 1 } } transform { "
                             "center_crop { size: [4, 3] } } eval_transform { center_crop { size: "
                             "[4, 3] } }"),
      Part::kTraining);
  EXPECT_EQ(flipped->spec().input,
            (TensorSpec{DType::kU8, Shape{3, 4, 3}, Layout::channels_last()}));
  EXPECT_SAYS(flipped->description(), "in 10 classes, transformed to [3, 4, 3]");
  for (int64_t i = 0; i < 2; ++i) {
    TestImage image = image_of(*flipped, {i});
    EXPECT_EQ(sample_of(*flipped, {i}).label(), i + 1);
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 3; ++x) {
        for (int c = 0; c < 3; ++c) {
          const auto at = static_cast<size_t>(((i * 3 + c) * 4 + y) * 5 + 3 - x);
          EXPECT_EQ(image.at(y, x, c), static_cast<uint8_t>(planes[at]));
        }
      }
    }
  }
}

TEST(WithTransformsTest, AcceptsOnlyImages) {
  Folder folder;
  folder.write("x.csv", "1,2,0\n3,4,1\n");
  EXPECT_SAYS(testing::config_error(folder.config("csv { train_file: 'x.csv' } transform { "
                                                  "horizontal_flip {} }")),
              "data.transform: is only for images, u8 [3, H, W] or [1, H, W]; the samples are f32 "
              "[2]");
  EXPECT_SAYS(testing::config_error(folder.config("synthetic { shape: [2, 4, 4] } transform { "
                                                  "horizontal_flip {} }")),
              "the samples are u8 [2, 4, 4]");
  EXPECT_SAYS(testing::config_error(folder.config("synthetic {} decode { channels: 1 }")),
              "data.decode: is only for images in files");
  EXPECT_SAYS(testing::config_error(folder.config("synthetic {} cache { memory_bytes: 9 }")),
              "data.cache: is only for images in files");
}

TEST(WithTransformsTest, ErrorsNameTheSample) {
  const auto dataset = open_dataset(
      config_of("synthetic { shape: [1, 8, 8] } transform { random_crop { size: 9 } }"),
      Part::kTraining);
  EXPECT_SAYS(message<DataError>([&] { sample_of(*dataset, {17}); }),
              "synthetic: sample 17: is 8 x 8 (height x width), padded by 0, which is smaller than "
              "the 9 x 9");
}

TEST(WithTransformsTest, RejectsPartsOfDifferentSizesWithARemedy) {
  const DataConfig config =
      config_of("synthetic { shape: [3, 8, 8] } transform { random_crop { size: 6 } }");
  const auto training = open_dataset(config, Part::kTraining);
  const auto evaluation = open_dataset(config, Part::kEvaluation);
  EXPECT_SAYS(message<DataError>([&] { check_compatible(*training, *evaluation); }),
              "data.eval_transform can resize or crop to their size");
}

TEST(WithTransformsTest, NormalizedSamplesHaveMeanZeroAndUnitVariance) {
  // Measures the synthetic data set, then normalizes with the measured values.
  const std::string format =
      "synthetic { shape: [3, 8, 8] count: 500 classes: 5 } transform { "
      "horizontal_flip {} } ";
  const auto moments = [](const Dataset& dataset) {
    const SampleSpec& spec = dataset.spec();
    std::array<double, 3> sum{};
    std::array<double, 3> squares{};
    for (int64_t i = 0; i < 500; ++i) {
      TestImage image = image_of(dataset, {i});
      for (size_t k = 0; k < image.pixels.size(); ++k) {
        const size_t c = k % 3;
        const auto of = [&](const std::vector<float>& values) {
          return static_cast<double>(values.size() == 1 ? values[0] : values[c]);
        };
        const double x =
            (image.pixels[k] * static_cast<double>(spec.scale) - of(spec.mean)) / of(spec.stddev);
        sum[c] += x / (500 * 64);
        squares[c] += x * x / (500 * 64);
      }
    }
    for (size_t c = 0; c < 3; ++c) squares[c] = std::sqrt(squares[c] - sum[c] * sum[c]);
    return std::pair(sum, squares);
  };
  const auto [mean, stddev] = moments(*open_dataset(config_of(format), Part::kTraining));
  std::string normalize = "normalize { ";
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_GT(mean[c], 0.3);
    normalize += "mean: " + std::to_string(mean[c]) + " std: " + std::to_string(stddev[c]);
    normalize += ' ';
  }
  const auto [zero, one] =
      moments(*open_dataset(config_of(format + normalize + "}"), Part::kTraining));
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(zero[c], 0, 1e-4);
    EXPECT_NEAR(one[c], 1, 1e-4);
  }
}

}  // namespace
}  // namespace trireme::data
