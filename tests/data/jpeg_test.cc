#include <gmock/gmock.h>

#include "data/images/codec.h"
#include "tests/data/encoded_images.h"

namespace trireme::data {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JpegTest, RegionsMatchTheFullImage) {
  for (const std::array<int, 2> sampling :
       {std::array{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}) {
    for (const bool progressive : {false, true}) {
      for (const ImageSize size : testing::kSizes) {
        SCOPED_TRACE(::testing::Message() << sampling[0] << "x" << sampling[1] << " " << progressive
                                          << " " << size.height << "x" << size.width);
        const testing::Bytes bytes = testing::encode_with(
            testing::waves(size, 3), {.sampling = sampling, .progressive = progressive});
        ASSERT_NO_FATAL_FAILURE(testing::expect_regions(bytes, 25));
      }
    }
  }
}

TEST(JpegTest, RegionsOfOtherColorSpacesAndScansMatch) {
  const ImageSize size{97, 131};
  const std::array files{
      testing::encode_with(testing::waves(size, 1), {}),
      testing::encode_with(testing::waves(size, 1), {.sampling = {2, 2}, .restart_rows = 1}),
      testing::encode_with(testing::waves(size, 3), {.sampling = {2, 2}, .restart_rows = 1}),
      testing::encode_with(testing::waves(size, 3), {.sampling = {2, 2}, .one_scan_each = true}),
      testing::encode_with(testing::waves(size, 3), {.sampling = {2, 2}, .arithmetic = true}),
      testing::encode_with(testing::waves(size, 3), {.stored = JCS_RGB}),
      testing::encode_with(testing::waves(size, 4), {.stored = JCS_CMYK}),
      testing::encode_with(testing::waves(size, 4), {.sampling = {2, 2}, .stored = JCS_YCCK}),
      testing::encode_with(testing::waves(size, 4),
                           {.sampling = {2, 2}, .progressive = true, .stored = JCS_YCCK}),
  };
  for (const testing::Bytes& bytes : files) {
    SCOPED_TRACE(&bytes - files.data());
    ASSERT_NO_FATAL_FAILURE(testing::expect_regions(bytes, 50));
  }
}

TEST(JpegTest, ShrinkingAveragesPixels) {
  const testing::TestImage image = testing::waves({95, 130}, 3);
  const testing::Bytes bytes = testing::encode_with(image, {});
  const testing::TestImage whole = decode(bytes);
  for (const int shrink : {2, 4, 8}) {
    const testing::TestImage small = decode(bytes, 3, shrink);
    ASSERT_EQ(small.size, (ImageSize{(95 + shrink - 1) / shrink, (130 + shrink - 1) / shrink}));
    testing::TestImage average({95 / shrink, 130 / shrink}, 3);
    testing::TestImage inner(average.size, 3);
    for (int i = 0; i < static_cast<int>(average.pixels.size()); ++i) {
      const int c = i % 3, x = i / 3 % average.size.width, y = i / 3 / average.size.width;
      int sum = 0;
      for (int k = 0; k < shrink * shrink; ++k) {
        sum += whole.at(y * shrink + k / shrink, x * shrink + k % shrink)[c];
      }
      average.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(sum / (shrink * shrink));
      inner.pixels[static_cast<size_t>(i)] = small.at(y, x)[c];
    }
    EXPECT_LT(testing::mean_difference(average, inner), 3) << shrink;
  }
}

TEST(JpegTest, DescribesTheFormat) {
  const auto format = [](int channels, const testing::JpegKind& kind) {
    return Decoder().open(testing::encode_with(testing::waves({9, 9}, channels), kind)).format;
  };
  EXPECT_EQ(format(3, {}), "JPEG");
  EXPECT_EQ(format(3, {.progressive = true}), "progressive JPEG");
  EXPECT_EQ(format(3, {.stored = JCS_RGB}), "RGB JPEG");
  EXPECT_EQ(format(1, {}), "gray JPEG");
  EXPECT_EQ(format(4, {.stored = JCS_CMYK}), "CMYK JPEG");
  EXPECT_EQ(format(4, {.progressive = true, .stored = JCS_YCCK}), "progressive YCCK JPEG");
}

TEST(JpegTest, DecodesEncodedImages) {
  for (const int channels : {1, 3}) {
    testing::TestImage image({61, 47}, channels);
    for (size_t i = 0; i < image.pixels.size(); ++i) {
      image.pixels[i] = static_cast<uint8_t>(i / 61);
    }
    const testing::Bytes fine = encode_jpeg(image.view(), 95);
    const testing::Bytes coarse = encode_jpeg(image.view(), 10);
    EXPECT_LT(coarse.size(), fine.size());
    EXPECT_LT(testing::mean_difference(decode(fine, channels), image), 2);
    EXPECT_GT(testing::mean_difference(decode(coarse, channels), image),
              testing::mean_difference(decode(fine, channels), image));
  }
  testing::TestImage noise({33, 35}, 3);
  std::mt19937 random(5);
  for (uint8_t& pixel : noise.pixels) pixel = random() % 2 == 0 ? 0 : 255;
  EXPECT_EQ(decode(encode_jpeg(noise.view(), 100)).size, noise.size);
  EXPECT_THAT(testing::message<ImageError>([&] {
                testing::TestImage wide({1, 65501}, 1);
                encode_jpeg(wide.view(), 90);
              }),
              HasSubstr("Maximum supported image dimension is 65500 pixels"));
}

// Truncation in the lower half of the image only affects regions in the lower half.
TEST(JpegTest, DoesNotReadDataBelowTheRegion) {
  const ImageSize size{160, 96};
  testing::Bytes bytes = testing::encode_with(testing::waves(size, 3), {.sampling = {2, 2}});
  const testing::TestImage whole = decode(bytes);
  bytes.resize(bytes.size() * 3 / 4);
  EXPECT_THAT(testing::error_of(bytes),
              ::testing::MatchesRegex("JPEG data ends early, after row (9|10|11|12)[0-9]? of 160"));
  Decoder decoder;
  testing::expect_region(decoder, bytes, whole, {3, {17, 20, 60, 50}, 1});
}

TEST(JpegTest, ErrorsDescribeTheDamage) {
  const testing::Bytes good =
      testing::encode_with(testing::waves({64, 64}, 3), {.sampling = {2, 2}, .restart_rows = 1});
  testing::Bytes bytes = good;
  std::fill(bytes.end() - 600, bytes.end() - 400, uint8_t{0x55});
  EXPECT_THAT(testing::error_of(bytes), StartsWith("JPEG data is damaged, after row "));

  bytes = good;
  const std::array<uint8_t, 2> frame{0xFF, 0xC0};
  const auto start = std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end());
  start[4] = 12;
  EXPECT_EQ(testing::error_of(bytes), "JPEG cannot be decoded: Unsupported JPEG data precision 12");
  start[4] = 8;
  start[1] = 0xC3;
  EXPECT_EQ(testing::error_of(bytes),
            "JPEG cannot be decoded: Unsupported JPEG process: SOF type 0xc3");
  start[1] = 0xC0;
  std::fill_n(start + 5, 4, uint8_t{0xFF});
  EXPECT_EQ(testing::error_of(bytes),
            "JPEG cannot be decoded: Maximum supported image dimension is 65500 pixels");
  start[5] = start[7] = 0xFE;
  EXPECT_EQ(testing::error_of(bytes),
            "the image has 65279x65279 pixels, more than the maximum of 268435456");
  start[5] = start[7] = 0x3F;
  EXPECT_EQ(testing::error_of(bytes), "JPEG data ends early: " + std::to_string(bytes.size()) +
                                          " bytes for 16383x16383 pixels");
  bytes.resize(100);
  EXPECT_EQ(testing::error_of(bytes), "JPEG data ends early, in its header");
}

// Pillow ignores such bytes, too.
TEST(JpegTest, IgnoresExtraBytesBeforeMarkers) {
  testing::Bytes bytes = testing::encode_with(testing::waves({40, 40}, 3), {});
  const testing::TestImage whole = decode(bytes);
  bytes.insert(bytes.end() - 2, {1, 2, 3});
  bytes.insert(bytes.begin() + 20, {0, 0, 0});
  bytes.push_back(9);
  EXPECT_EQ(decode(bytes), whole);
}

TEST(JpegTest, RejectsTooManyScans) {
  testing::Bytes bytes = testing::encode_with(testing::waves({40, 40}, 3), {.one_scan_each = true});
  const std::array<uint8_t, 2> marker{0xFF, 0xDA};
  const auto last = std::find_end(bytes.begin(), bytes.end(), marker.begin(), marker.end());
  const testing::Bytes scan(last, bytes.end() - 2);
  bytes.resize(bytes.size() - 2);
  for (int i = 0; i < 600; ++i) bytes.insert(bytes.end(), scan.begin(), scan.end());
  bytes.insert(bytes.end(), {0xFF, 0xD9});
  EXPECT_EQ(testing::error_of(bytes), "JPEG cannot be decoded: more than 500 scans");
}

}  // namespace
}  // namespace trireme::data
