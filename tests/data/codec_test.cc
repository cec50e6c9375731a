#include "data/images/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "data/images/libjpeg.h"
#include "tests/data/files.h"

namespace trireme {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Bytes = std::vector<uint8_t>;

// A picture of its own memory that can be compared.
struct Picture {
  ImageSize size;
  int channels = 0;
  Bytes pixels;

  Picture(ImageSize size_, int channels_)
      : size(size_),
        channels(channels_),
        pixels(static_cast<size_t>(size.height * size.width * channels)) {}
  ImageView view() { return view_of(pixels.data(), size, channels); }
  const uint8_t* at(int y, int x) const {
    return pixels.data() + (std::ptrdiff_t{y} * size.width + x) * channels;
  }
  bool operator==(const Picture&) const = default;
};

// Waves, and some noise so that there are coefficients of every frequency.
Picture waves(ImageSize size, int channels) {
  Picture picture(size, channels);
  std::mt19937 random(1);
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    const auto c = static_cast<double>(i % static_cast<size_t>(channels));
    const auto pixel = static_cast<int>(i) / channels;
    const double wave =
        std::sin(pixel % size.width / (7 + c)) + std::cos(pixel / size.width / (5 + 2 * c));
    picture.pixels[i] = static_cast<uint8_t>(120 + 50 * wave + static_cast<double>(random() % 20));
  }
  return picture;
}

struct JpegKind {
  std::array<int, 2> sampling{1, 1};  // of the first component, across and down
  bool progressive = false;
  int restart_rows = 0;
  J_COLOR_SPACE stored = JCS_YCbCr;
  bool one_scan_each = false;  // of the components
  bool arithmetic = false;
};

J_COLOR_SPACE colors_of(int channels) {
  return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
}

// Of 1, 3 or 4 channels.
Bytes encode_with(Picture picture, const JpegKind& kind) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  uint8_t* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &memory, &size);
  encoder.image_height = static_cast<JDIMENSION>(picture.size.height);
  encoder.image_width = static_cast<JDIMENSION>(picture.size.width);
  encoder.input_components = picture.channels;
  encoder.in_color_space = colors_of(picture.channels);
  jpeg_set_defaults(&encoder);
  jpeg_set_colorspace(&encoder, picture.channels == 1 ? JCS_GRAYSCALE : kind.stored);
  jpeg_set_quality(&encoder, 85, TRUE);
  encoder.comp_info[0].h_samp_factor = kind.sampling[0];
  encoder.comp_info[0].v_samp_factor = kind.sampling[1];
  encoder.arith_code = kind.arithmetic ? TRUE : FALSE;
  encoder.restart_in_rows = kind.restart_rows;
  if (kind.progressive) jpeg_simple_progression(&encoder);
  std::array<jpeg_scan_info, 3> scans{};
  if (kind.one_scan_each) {
    for (int i = 0; i < 3; ++i) scans[static_cast<size_t>(i)] = {1, {i}, 0, 63, 0, 0};
    encoder.scan_info = scans.data();
    encoder.num_scans = 3;
  }
  jpeg_start_compress(&encoder, TRUE);
  for (int y = 0; y < picture.size.height; ++y) {
    JSAMPROW row = picture.view().row(y);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

// Rows as libpng takes them: samples of 16 bits have the high byte first.
Bytes encode_png_with(ImageSize size, int color_type, int bit_depth, int interlace,
                      const std::vector<Bytes>& rows, std::vector<png_color> palette = {}) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto write = [](png_structp to, png_bytep from, size_t count) {
    auto& bytes = *static_cast<Bytes*>(png_get_io_ptr(to));
    bytes.insert(bytes.end(), from, from + count);
  };
  png_set_write_fn(png, &out, write, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(size.width),
               static_cast<png_uint_32>(size.height), bit_depth, color_type, interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!palette.empty()) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (const Bytes& row : rows) pointers.push_back(const_cast<png_bytep>(row.data()));
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::vector<Bytes> rows_of(const Picture& picture) {
  std::vector<Bytes> rows;
  for (int y = 0; y < picture.size.height; ++y) {
    rows.emplace_back(picture.at(y, 0), picture.at(y, 0) + picture.size.width * picture.channels);
  }
  return rows;
}

Picture decode(Decoder& decoder, const Bytes& bytes, DecodeRequest request) {
  const ImageSize whole = decoder.open(bytes).size;
  if (request.region == Region()) request.region = {0, 0, whole.height, whole.width};
  Picture picture(decoder.plan(request).size, request.channels);
  decoder.decode(picture.view());
  return picture;
}
Picture decode(const Bytes& bytes, int channels = 3, int shrink = 1) {
  Decoder decoder;
  return decode(decoder, bytes, {channels, {}, shrink});
}

std::string error_of(const Bytes& bytes, const DecodeRequest& request = {}) {
  Decoder decoder;
  return testing::message<PictureError>([&] { decode(decoder, bytes, request); });
}

Bytes text(std::string_view bytes) { return {bytes.begin(), bytes.end()}; }

double mean_difference(const Picture& a, const Picture& b) {
  const double sum =
      std::inner_product(a.pixels.begin(), a.pixels.end(), b.pixels.begin(), 0.0, std::plus<>(),
                         [](int x, int y) { return std::abs(x - y); });
  return sum / static_cast<double>(a.pixels.size());
}

// That a region of it is what the whole has there, and how much around it comes along.
void expect_region(Decoder& decoder, const Bytes& bytes, const Picture& whole,
                   const DecodeRequest& request) {
  decoder.open(bytes);
  const DecodePlan plan = decoder.plan(request);
  Picture part(plan.size, request.channels);
  decoder.decode(part.view());

  const Region& region = request.region;
  const bool jpeg = bytes[0] == 0xFF;
  const int shrink = jpeg ? request.shrink : 1;
  ASSERT_EQ(plan.covers.size(), (ImageSize{plan.size.height * shrink, plan.size.width * shrink}));
  ASSERT_LE(plan.covers.top, region.top);
  ASSERT_LE(plan.covers.left, region.left);
  ASSERT_EQ(plan.covers.top % shrink, 0);
  ASSERT_EQ(plan.covers.left % shrink, 0);
  ASSERT_GE(plan.covers.left + plan.covers.width, region.left + region.width);
  ASSERT_LT(plan.covers.height - region.height, 2 * shrink);
  // Left and right up to a block of four times the width, and a margin of three pixels.
  ASSERT_TRUE(plan.covers.width - region.width <= (jpeg ? 2 * (32 + 3 * shrink) : 0) ||
              plan.size.width == whole.size.width);
  const int bottom = (region.top + region.height + shrink - 1) / shrink;
  const int left = region.left / shrink;
  const int right = (region.left + region.width + shrink - 1) / shrink;
  for (int y = region.top / shrink; y < bottom; ++y) {
    const uint8_t* expected = whole.at(y, left);
    const uint8_t* row = part.at(y - plan.covers.top / shrink, left - plan.covers.left / shrink);
    ASSERT_TRUE(std::equal(row, row + (right - left) * request.channels, expected))
        << "row " << y << " of " << region.height << "x" << region.width << " at (" << region.top
        << ", " << region.left << "), 1/" << request.shrink << ", " << request.channels
        << " channels";
  }
}

// Regions of all sizes, some of them at the picture's borders.
Region random_region(ImageSize size, std::mt19937& random) {
  const auto range = [&](int extent) {
    const int limit = random() % 2 == 0 ? extent : std::min(extent, 24);
    const int length = 1 + static_cast<int>(random() % static_cast<unsigned>(limit));
    const int last = extent - length;
    const auto any = static_cast<int>(random() % static_cast<unsigned>(last + 1));
    const std::array begins{0, last, any, any};
    return std::array{begins[random() % 4], length};
  };
  const auto [top, height] = range(size.height);
  const auto [left, width] = range(size.width);
  return {top, left, height, width};
}

void expect_regions(const Bytes& bytes, int count) {
  Decoder decoder;
  std::mt19937 random(7);
  const ImageSize size = decoder.open(bytes).size;
  for (const int channels : {1, 3}) {
    for (const int shrink : {1, 2, 4, 8}) {
      const Picture whole = decode(bytes, channels, shrink);
      for (int i = 0; i < count; ++i) {
        ASSERT_NO_FATAL_FAILURE(
            expect_region(decoder, bytes, whole, {channels, random_region(size, random), shrink}));
      }
    }
  }
}

constexpr std::array<ImageSize, 7> kSizes{
    {{97, 131}, {64, 96}, {33, 17}, {16, 200}, {3, 5}, {1, 1}, {150, 9}}};

TEST(JpegTest, RegionsAreThoseOfTheWhole) {
  for (const std::array<int, 2> sampling :
       {std::array{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}) {
    for (const bool progressive : {false, true}) {
      for (const ImageSize size : kSizes) {
        SCOPED_TRACE(::testing::Message() << sampling[0] << "x" << sampling[1] << " " << progressive
                                          << " " << size.height << "x" << size.width);
        const Bytes bytes =
            encode_with(waves(size, 3), {.sampling = sampling, .progressive = progressive});
        ASSERT_NO_FATAL_FAILURE(expect_regions(bytes, 25));
      }
    }
  }
}

TEST(JpegTest, RegionsOfOtherKinds) {
  const ImageSize size{97, 131};
  const std::array files{
      encode_with(waves(size, 1), {}),
      encode_with(waves(size, 1), {.sampling = {2, 2}, .restart_rows = 1}),
      encode_with(waves(size, 3), {.sampling = {2, 2}, .restart_rows = 1}),
      encode_with(waves(size, 3), {.sampling = {2, 2}, .one_scan_each = true}),
      encode_with(waves(size, 3), {.sampling = {2, 2}, .arithmetic = true}),
      encode_with(waves(size, 3), {.stored = JCS_RGB}),
      encode_with(waves(size, 4), {.stored = JCS_CMYK}),
      encode_with(waves(size, 4), {.sampling = {2, 2}, .stored = JCS_YCCK}),
      encode_with(waves(size, 4), {.sampling = {2, 2}, .progressive = true, .stored = JCS_YCCK}),
  };
  for (const Bytes& bytes : files) {
    SCOPED_TRACE(&bytes - files.data());
    ASSERT_NO_FATAL_FAILURE(expect_regions(bytes, 50));
  }
}

TEST(JpegTest, ShrinkingAverages) {
  const Picture picture = waves({95, 130}, 3);
  const Bytes bytes = encode_with(picture, {});
  const Picture whole = decode(bytes);
  for (const int shrink : {2, 4, 8}) {
    const Picture small = decode(bytes, 3, shrink);
    ASSERT_EQ(small.size, (ImageSize{(95 + shrink - 1) / shrink, (130 + shrink - 1) / shrink}));
    Picture average({95 / shrink, 130 / shrink}, 3);
    Picture inner(average.size, 3);
    for (int i = 0; i < static_cast<int>(average.pixels.size()); ++i) {
      const int c = i % 3, x = i / 3 % average.size.width, y = i / 3 / average.size.width;
      int sum = 0;
      for (int k = 0; k < shrink * shrink; ++k) {
        sum += whole.at(y * shrink + k / shrink, x * shrink + k % shrink)[c];
      }
      average.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>(sum / (shrink * shrink));
      inner.pixels[static_cast<size_t>(i)] = small.at(y, x)[c];
    }
    EXPECT_LT(mean_difference(average, inner), 3) << shrink;
  }
}

TEST(JpegTest, NamesItsKind) {
  const auto format = [](int channels, const JpegKind& kind) {
    return Decoder().open(encode_with(waves({9, 9}, channels), kind)).format;
  };
  EXPECT_EQ(format(3, {}), "JPEG");
  EXPECT_EQ(format(3, {.progressive = true}), "progressive JPEG");
  EXPECT_EQ(format(3, {.stored = JCS_RGB}), "RGB JPEG");
  EXPECT_EQ(format(1, {}), "grey JPEG");
  EXPECT_EQ(format(4, {.stored = JCS_CMYK}), "CMYK JPEG");
  EXPECT_EQ(format(4, {.progressive = true, .stored = JCS_YCCK}), "progressive YCCK JPEG");
}

TEST(JpegTest, EncodesWhatItDecodes) {
  for (const int channels : {1, 3}) {
    Picture picture({61, 47}, channels);
    for (size_t i = 0; i < picture.pixels.size(); ++i) {
      picture.pixels[i] = static_cast<uint8_t>(i / 61);
    }
    const Bytes fine = encode_jpeg(picture.view(), 95);
    const Bytes coarse = encode_jpeg(picture.view(), 10);
    EXPECT_LT(coarse.size(), fine.size());
    EXPECT_LT(mean_difference(decode(fine, channels), picture), 2);
    EXPECT_GT(mean_difference(decode(coarse, channels), picture),
              mean_difference(decode(fine, channels), picture));
  }
  Picture noise({33, 35}, 3);
  std::mt19937 random(5);
  for (uint8_t& pixel : noise.pixels) pixel = random() % 2 == 0 ? 0 : 255;
  EXPECT_EQ(decode(encode_jpeg(noise.view(), 100)).size, noise.size);
  EXPECT_THAT(testing::message<PictureError>([&] {
                Picture wide({1, 65501}, 1);
                encode_jpeg(wide.view(), 90);
              }),
              HasSubstr("Maximum supported image dimension is 65500 pixels"));
}

// Data that ends anywhere in the lower half hurts only who wants the lower half.
TEST(JpegTest, ReadsNoFurtherThanItMust) {
  const ImageSize size{160, 96};
  Bytes bytes = encode_with(waves(size, 3), {.sampling = {2, 2}});
  const Picture whole = decode(bytes);
  bytes.resize(bytes.size() * 3 / 4);
  EXPECT_THAT(error_of(bytes),
              ::testing::MatchesRegex("JPEG data ends early, after row (9|10|11|12)[0-9]? of 160"));
  Decoder decoder;
  expect_region(decoder, bytes, whole, {3, {17, 20, 60, 50}, 1});
}

TEST(JpegTest, NamesDamage) {
  const Bytes good = encode_with(waves({64, 64}, 3), {.sampling = {2, 2}, .restart_rows = 1});
  Bytes bytes = good;
  std::fill(bytes.end() - 600, bytes.end() - 400, uint8_t{0x55});
  EXPECT_THAT(error_of(bytes), StartsWith("JPEG data is damaged, after row "));

  bytes = good;
  const std::array<uint8_t, 2> frame{0xFF, 0xC0};
  const auto start = std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end());
  start[4] = 12;
  EXPECT_EQ(error_of(bytes), "JPEG cannot be decoded: Unsupported JPEG data precision 12");
  start[4] = 8;
  start[1] = 0xC3;
  EXPECT_EQ(error_of(bytes), "JPEG cannot be decoded: Unsupported JPEG process: SOF type 0xc3");
  start[1] = 0xC0;
  std::fill_n(start + 5, 4, uint8_t{0xFF});
  EXPECT_EQ(error_of(bytes),
            "JPEG cannot be decoded: Maximum supported image dimension is 65500 pixels");
  start[5] = start[7] = 0xFE;
  EXPECT_EQ(error_of(bytes), "65279x65279 pixels are too many, 2^28 may be");
  start[5] = start[7] = 0x3F;
  EXPECT_EQ(error_of(bytes), "JPEG data ends early: " + std::to_string(bytes.size()) +
                                 " bytes for 16383x16383 pixels");
  bytes.resize(100);
  EXPECT_EQ(error_of(bytes), "JPEG data ends early, in its header");
}

// What is beside the point, and Pillow reads too.
TEST(JpegTest, BearsJunkBeforeMarkers) {
  Bytes bytes = encode_with(waves({40, 40}, 3), {});
  const Picture whole = decode(bytes);
  bytes.insert(bytes.end() - 2, {1, 2, 3});
  bytes.insert(bytes.begin() + 20, {0, 0, 0});
  bytes.push_back(9);
  EXPECT_EQ(decode(bytes), whole);
}

TEST(JpegTest, RefusesEndlessScans) {
  Bytes bytes = encode_with(waves({40, 40}, 3), {.one_scan_each = true});
  const std::array<uint8_t, 2> marker{0xFF, 0xDA};
  const auto last = std::find_end(bytes.begin(), bytes.end(), marker.begin(), marker.end());
  const Bytes scan(last, bytes.end() - 2);
  bytes.resize(bytes.size() - 2);
  for (int i = 0; i < 600; ++i) bytes.insert(bytes.end(), scan.begin(), scan.end());
  bytes.insert(bytes.end(), {0xFF, 0xD9});
  EXPECT_EQ(error_of(bytes), "JPEG cannot be decoded: more than 500 scans");
}

TEST(PngTest, EncodesWhatItDecodes) {
  for (const int channels : {1, 3}) {
    Picture picture = waves({31, 45}, channels);
    EXPECT_EQ(decode(encode_png(picture.view()), channels), picture);
    const Region region{3, 7, 11, 20};
    const ImageView part = picture.view().part(region);
    Picture copy(region.size(), channels);
    for (int y = 0; y < part.height; ++y) {
      std::copy_n(part.row(y), part.row_bytes(), copy.view().row(y));
    }
    EXPECT_EQ(decode(encode_png(part), channels), copy);
  }
}

TEST(PngTest, RegionsAreThoseOfTheWhole) {
  for (const ImageSize size : kSizes) {
    for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7}) {
      for (const auto& [type, channels] : {std::pair{PNG_COLOR_TYPE_GRAY, 1},
                                           {PNG_COLOR_TYPE_GRAY_ALPHA, 2},
                                           {PNG_COLOR_TYPE_RGB, 3},
                                           {PNG_COLOR_TYPE_RGB_ALPHA, 4}}) {
        const Bytes bytes =
            encode_png_with(size, type, 8, interlace, rows_of(waves(size, channels)));
        ASSERT_NO_FATAL_FAILURE(expect_regions(bytes, 10));
      }
    }
  }
}

TEST(PngTest, NamesItsKind) {
  const ImageSize size{2, 2};
  const std::vector<Bytes> rows(2, Bytes(16));
  const auto format = [&](int type, int depth, int interlace) {
    std::vector<png_color> palette;
    if (type == PNG_COLOR_TYPE_PALETTE) palette = {{1, 2, 3}};
    return Decoder().open(encode_png_with(size, type, depth, interlace, rows, palette)).format;
  };
  EXPECT_EQ(format(PNG_COLOR_TYPE_RGB, 8, PNG_INTERLACE_NONE), "PNG");
  EXPECT_EQ(format(PNG_COLOR_TYPE_GRAY_ALPHA, 16, PNG_INTERLACE_NONE), "16-bit grey PNG");
  EXPECT_EQ(format(PNG_COLOR_TYPE_PALETTE, 4, PNG_INTERLACE_ADAM7), "interlaced palette PNG");
}

TEST(PngTest, SixteenBitsBecomeEight) {
  // Pairs of bytes: v of 65535 is v / 257 of 255.
  const Bytes row{0x00, 0x00, 0x00, 0x80, 0x00, 0x81, 0x7F,
                  0xFF, 0x80, 0x00, 0xFF, 0x7E, 0xFF, 0xFF};
  const Bytes grey = encode_png_with({1, 7}, PNG_COLOR_TYPE_GRAY, 16, PNG_INTERLACE_NONE, {row});
  EXPECT_EQ(decode(grey, 1).pixels, (Bytes{0, 0, 1, 127, 128, 254, 255}));
  Bytes colors;
  for (size_t x = 0; x < 7; ++x) {
    for (int c = 0; c < 3; ++c) colors.insert(colors.end(), {row[2 * x], row[2 * x + 1]});
  }
  const Bytes rgb = encode_png_with({1, 7}, PNG_COLOR_TYPE_RGB, 16, PNG_INTERLACE_ADAM7, {colors});
  EXPECT_EQ(decode(rgb).pixels, decode(grey).pixels);
}

TEST(PngTest, FewBitsSpanTheWholeRange) {
  const auto pixels = [](int depth, uint8_t byte) {
    const Bytes file =
        encode_png_with({1, 8 / depth}, PNG_COLOR_TYPE_GRAY, depth, PNG_INTERLACE_NONE, {{byte}});
    return decode(file, 1).pixels;
  };
  EXPECT_EQ(pixels(1, 0b01101000), (Bytes{0, 255, 255, 0, 255, 0, 0, 0}));
  EXPECT_EQ(pixels(2, 0b00011011), (Bytes{0, 85, 170, 255}));
  EXPECT_EQ(pixels(4, 0x1E), (Bytes{17, 238}));
  const Bytes palette = encode_png_with({1, 4}, PNG_COLOR_TYPE_PALETTE, 2, PNG_INTERLACE_NONE,
                                        {{0b01100100}}, {{1, 2, 3}, {40, 50, 60}, {255, 0, 9}});
  EXPECT_EQ(decode(palette).pixels, (Bytes{40, 50, 60, 255, 0, 9, 40, 50, 60, 1, 2, 3}));
}

TEST(PngTest, NamesDamage) {
  const Bytes good = encode_png(waves({400, 100}, 3).view());
  Bytes bytes = good;
  bytes.resize(bytes.size() / 2);
  EXPECT_THAT(error_of(bytes),
              ::testing::MatchesRegex("PNG data ends early, after row [12][0-9]+ of 400"));
  bytes.resize(20);
  EXPECT_EQ(error_of(bytes), "PNG data ends early");
  bytes = good;
  bytes[bytes.size() - 14] ^= 1;  // the checksum of the pixels, below which is only the end
  EXPECT_THAT(error_of(bytes), HasSubstr("CRC error"));
  bytes = good;
  bytes[18] ^= 1;  // the width
  EXPECT_THAT(error_of(bytes), HasSubstr("IHDR: CRC error"));

  const std::vector<Bytes> rows(1, Bytes(1));
  bytes = encode_png_with({1, 1}, PNG_COLOR_TYPE_GRAY, 8, PNG_INTERLACE_NONE, rows);
  const auto announce = [&](uint8_t byte) {
    std::fill_n(bytes.begin() + 16, 8, uint8_t{0});
    bytes[17] = bytes[21] = byte;
    const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
    for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
    return error_of(bytes);
  };
  EXPECT_EQ(announce(1), "65536x65536 pixels are too many, 2^28 may be");
  EXPECT_THAT(announce(0), HasSubstr("Invalid IHDR data"));
  bytes[18] = bytes[22] = 0x40;
  const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  EXPECT_THAT(error_of(bytes), HasSubstr("bytes for 16384x16384 pixels"));
}

TEST(DecoderTest, NamesWhatIsNoPicture) {
  EXPECT_EQ(error_of({}), "the file is empty");
  EXPECT_EQ(error_of(text("GIF89a...")), "neither JPEG nor PNG, but GIF");
  EXPECT_EQ(error_of(text("RIFF1234WEBPVP8 ")), "neither JPEG nor PNG, but WebP");
  EXPECT_EQ(error_of(text({"II*\0\1\2", 6})), "neither JPEG nor PNG, but TIFF");
  EXPECT_EQ(error_of(text("<!DOCTYPE html>")), "neither JPEG nor PNG, but HTML");
  EXPECT_EQ(error_of(Bytes(100)), "neither JPEG nor PNG, but zeros");
  EXPECT_EQ(error_of({1, 2, 0xAB}),
            "neither JPEG nor PNG, but something that begins with 01 02 ab");
}

TEST(DecoderTest, KeepsToItsOrder) {
  Picture picture = waves({20, 30}, 3);
  const Bytes bytes = encode_png(picture.view());
  Decoder decoder;
  EXPECT_THROW(decoder.plan({3, {0, 0, 1, 1}, 1}), Error);
  decoder.open(bytes);
  EXPECT_THROW(decoder.decode(picture.view()), Error);
  const std::array wrong{DecodeRequest{2, {0, 0, 1, 1}, 1},  DecodeRequest{3, {0, 0, 1, 1}, 3},
                         DecodeRequest{3, {0, 0, 21, 1}, 1}, DecodeRequest{3, {0, 25, 1, 6}, 1},
                         DecodeRequest{3, {-1, 0, 1, 1}, 1}, DecodeRequest{3, {0, 0, 0, 1}, 1}};
  for (const DecodeRequest& request : wrong) EXPECT_THROW(decoder.plan(request), Error);
  decoder.plan({3, {0, 0, 20, 30}, 1});
  EXPECT_THROW(decoder.decode(picture.view().part({0, 0, 20, 29})), Error);
  Picture again(picture.size, 3);
  decoder.decode(again.view());
  EXPECT_EQ(again, picture);
  EXPECT_THROW(decoder.decode(again.view()), Error);
}

// A file without tables is not decoded by those of the file before it.
TEST(DecoderTest, KeepsNothingOfThePictureBefore) {
  const Bytes good = encode_with(waves({16, 16}, 3), {.progressive = true});
  for (const uint8_t table : {uint8_t{0xDB}, uint8_t{0xC4}}) {
    Bytes bytes = good;
    const std::array<uint8_t, 2> marker{0xFF, table};
    const auto found = std::search(bytes.begin(), bytes.end(), marker.begin(), marker.end());
    found[1] = 0xFE;  // a comment
    Decoder decoder;
    decode(decoder, good, {});
    const auto error = testing::message<PictureError>([&] { decode(decoder, bytes, {}); });
    EXPECT_THAT(error, HasSubstr("was not defined"));
    EXPECT_EQ(error, error_of(bytes));
  }
}

// Rows apart: what lies between them is not touched.
TEST(DecoderTest, KeepsToItsStride) {
  Picture picture = waves({40, 37}, 3);
  for (const Bytes& bytes : {encode_png(picture.view()), encode_jpeg(picture.view(), 90),
                             encode_with(waves({40, 37}, 4), {.stored = JCS_CMYK})}) {
    for (const int channels : {1, 3}) {
      const Picture expected = decode(bytes, channels);
      Picture canvas({50, 60}, channels);
      std::ranges::fill(canvas.pixels, uint8_t{77});
      Picture around = canvas;
      const Region place{4, 9, 40, 37};
      Decoder decoder;
      decoder.open(bytes);
      decoder.plan({channels, {0, 0, 40, 37}, 1});
      decoder.decode(canvas.view().part(place));
      for (int y = 0; y < 40; ++y) {
        std::copy_n(expected.at(y, 0), 37 * channels, around.view().part(place).row(y));
      }
      EXPECT_EQ(canvas, around);
    }
  }
}

// Files of every kind, small.
std::vector<Bytes> victims() {
  const ImageSize size{33, 41};
  Picture rgb = waves(size, 3);
  return {
      encode_jpeg(rgb.view(), 70),
      encode_with(rgb, {.sampling = {2, 2}, .progressive = true, .restart_rows = 1}),
      encode_with(waves(size, 4), {.stored = JCS_YCCK}),
      encode_png(rgb.view()),
      encode_png_with(size, PNG_COLOR_TYPE_RGB_ALPHA, 8, PNG_INTERLACE_ADAM7,
                      rows_of(waves(size, 4))),
  };
}

// Neither crashes nor throws anything else; whether there was a picture.
bool survives(Decoder& decoder, const Bytes& bytes, const DecodeRequest& request) {
  try {
    decode(decoder, bytes, request);
    return true;
  } catch (const PictureError& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("JPEG"), HasSubstr("PNG"), HasSubstr("pixels"),
                                    HasSubstr("empty")));
    return false;
  }
}

TEST(DecoderTest, SurvivesEveryEnd) {
  Decoder decoder;
  for (const Bytes& whole : victims()) {
    const Picture expected = decode(whole);
    for (size_t size = 0; size + 16 < whole.size(); ++size) {
      const Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(survives(decoder, bytes, {})) << size << " of " << whole.size();
      try {
        decoder.open(bytes);
        Picture top(decoder.plan({3, {0, 0, 8, 41}, 1}).size, 3);
        decoder.decode(top.view());
        EXPECT_TRUE(std::ranges::equal(top.pixels, std::span(expected.pixels).first(8 * 41 * 3)));
      } catch (const PictureError&) {
        // As it should be.
      }
    }
    EXPECT_EQ(decode(whole), expected);
  }
}

TEST(DecoderTest, SurvivesFlippedBytes) {
  Decoder decoder;
  std::mt19937 random(3);
  for (const Bytes& whole : victims()) {
    int refused = 0;
    for (int i = 0; i < 1000; ++i) {
      Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 + random() % 255);
      DecodeRequest request;
      request.shrink = 1 << random() % 4;
      request.channels = random() % 2 == 0 ? 1 : 3;
      if (random() % 2 == 0) request.region = random_region({16, 16}, random);
      try {
        const ImageSize size = decoder.open(bytes).size;
        if (size.height < 16 || size.width < 16 || size.height > 999 || size.width > 999) continue;
      } catch (const PictureError&) {
        ++refused;
        continue;
      }
      refused += !survives(decoder, bytes, request);
    }
    EXPECT_GT(refused, 50);
    EXPECT_NO_THROW(decode(decoder, whole, {}));
  }
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What Pillow decodes, see tests/golden/make_codec_images.py.
TEST(DecoderTest, GivesWhatPillowGives) {
  const std::filesystem::path folder = TRIREME_SOURCE "/tests/golden/codec";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  int compared = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.is_directory()) continue;
    const std::string name = file.path().filename();
    const Bytes bytes = read(file.path());
    EXPECT_EQ(decode(bytes, 3), decode(read(folder / "rgb" / (name + ".png")), 3)) << name;
    EXPECT_EQ(decode(bytes, 1), decode(read(folder / "grey" / (name + ".png")), 1)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 15);
}

}  // namespace
}  // namespace trireme
