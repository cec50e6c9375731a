#include <gmock/gmock.h>

#include "data/images/codec.h"
#include "tests/data/encoded_images.h"

namespace trireme::data {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

TEST(PngTest, DecodesEncodedImages) {
  for (const int channels : {1, 3}) {
    testing::TestImage image = testing::waves({31, 45}, channels);
    EXPECT_EQ(decode(encode_png(image.view()), channels), image);
    const Region region{3, 7, 11, 20};
    const ImageView part = image.view().part(region);
    testing::TestImage copy(region.size(), channels);
    for (int y = 0; y < part.height; ++y) {
      std::copy_n(part.row(y), part.row_bytes(), copy.view().row(y));
    }
    EXPECT_EQ(decode(encode_png(part), channels), copy);
  }
}

TEST(PngTest, RegionsMatchTheFullImage) {
  for (const ImageSize size : testing::kSizes) {
    for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7}) {
      for (const auto& [type, channels] : {std::pair{PNG_COLOR_TYPE_GRAY, 1},
                                           {PNG_COLOR_TYPE_GRAY_ALPHA, 2},
                                           {PNG_COLOR_TYPE_RGB, 3},
                                           {PNG_COLOR_TYPE_RGB_ALPHA, 4}}) {
        const testing::Bytes bytes = testing::encode_png_with(
            size, type, 8, interlace, testing::rows_of(testing::waves(size, channels)));
        ASSERT_NO_FATAL_FAILURE(testing::expect_regions(bytes, 10));
      }
    }
  }
}

TEST(PngTest, DescribesTheFormat) {
  const ImageSize size{2, 2};
  const std::vector<testing::Bytes> rows(2, testing::Bytes(16));
  const auto format = [&](int type, int depth, int interlace) {
    std::vector<png_color> palette;
    if (type == PNG_COLOR_TYPE_PALETTE) palette = {{1, 2, 3}};
    return Decoder()
        .open(testing::encode_png_with(size, type, depth, interlace, rows, palette))
        .format;
  };
  EXPECT_EQ(format(PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_NONE), "PNG");
  EXPECT_EQ(format(PNG_COLOR_TYPE_GRAY_ALPHA, 16, PNG_INTERLACE_NONE), "16-bit gray PNG");
  EXPECT_EQ(format(PNG_COLOR_TYPE_PALETTE, 4, PNG_INTERLACE_ADAM7), "interlaced palette PNG");
}

TEST(PngTest, ConvertsSixteenBitsToEight) {
  // Pairs of bytes. A value v in [0, 65535] becomes v / 257, rounded.
  const testing::Bytes row{0x00, 0x00, 0x00, 0x80, 0x00, 0x81, 0x7F,
                           0xFF, 0x80, 0x00, 0xFF, 0x7E, 0xFF, 0xFF};
  const testing::Bytes gray =
      testing::encode_png_with({1, 7}, PNG_COLOR_TYPE_GRAY, 16, PNG_INTERLACE_NONE, {row});
  EXPECT_EQ(decode(gray, 1).pixels, (testing::Bytes{0, 0, 1, 127, 128, 254, 255}));
  testing::Bytes colors;
  for (size_t x = 0; x < 7; ++x) {
    for (int c = 0; c < 3; ++c) colors.insert(colors.end(), {row[2 * x], row[2 * x + 1]});
  }
  const testing::Bytes rgb =
      testing::encode_png_with({1, 7}, PNG_COLOR_TYPE_RGB, 16, PNG_INTERLACE_ADAM7, {colors});
  EXPECT_EQ(decode(rgb).pixels, decode(gray).pixels);
}

TEST(PngTest, ScalesFewerBitsToTheFullRange) {
  const auto pixels = [](int depth, uint8_t byte) {
    const testing::Bytes file = testing::encode_png_with({1, 8 / depth}, PNG_COLOR_TYPE_GRAY, depth,
                                                         PNG_INTERLACE_NONE, {{byte}});
    return decode(file, 1).pixels;
  };
  EXPECT_EQ(pixels(1, 0b01101000), (testing::Bytes{0, 255, 255, 0, 255, 0, 0, 0}));
  EXPECT_EQ(pixels(2, 0b00011011), (testing::Bytes{0, 85, 170, 255}));
  EXPECT_EQ(pixels(4, 0x1E), (testing::Bytes{17, 238}));
  const testing::Bytes palette =
      testing::encode_png_with({1, 4}, PNG_COLOR_TYPE_PALETTE, 2, PNG_INTERLACE_NONE,
                               {{0b01100100}}, {{1, 2, 3}, {40, 50, 60}, {255, 0, 9}});
  EXPECT_EQ(decode(palette).pixels, (testing::Bytes{40, 50, 60, 255, 0, 9, 40, 50, 60, 1, 2, 3}));
}

TEST(PngTest, ErrorsDescribeTheDamage) {
  const testing::Bytes good = encode_png(testing::waves({400, 100}, 3).view());
  testing::Bytes bytes = good;
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(testing::error_of(bytes),
              ::testing::MatchesRegex("PNG data ends early, after row [12][0-9]+ of 400"));
  bytes.resize(20);
  EXPECT_EQ(testing::error_of(bytes), "PNG data ends early");
  bytes = good;
  bytes[bytes.size() - 14] ^= 1;  // the checksum of the pixels, before the last chunk
  EXPECT_THAT(testing::error_of(bytes), HasSubstr("CRC error"));
  bytes = good;
  bytes[18] ^= 1;  // the width
  EXPECT_THAT(testing::error_of(bytes), HasSubstr("IHDR: CRC error"));

  const std::vector<testing::Bytes> rows(1, testing::Bytes(1));
  bytes = testing::encode_png_with({1, 1}, PNG_COLOR_TYPE_GRAY, 8, PNG_INTERLACE_NONE, rows);
  const auto error_with_size = [&](uint8_t byte) {
    std::fill_n(bytes.begin() + 16, 8, uint8_t{0});
    bytes[17] = bytes[21] = byte;
    const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
    for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    return testing::error_of(bytes);
  };
  EXPECT_EQ(error_with_size(1),
            "the image has 65536x65536 pixels, more than the maximum of 268435456");
  EXPECT_THAT(error_with_size(0), HasSubstr("Invalid IHDR data"));
  bytes[18] = bytes[22] = 0x40;
  const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  EXPECT_THAT(testing::error_of(bytes), HasSubstr("bytes for 16384x16384 pixels"));
}

}  // namespace
}  // namespace trireme::data
