// For tests of codecs: images, their encodings in all variants, and checks of decoding.
#pragma once

#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "data/images/codec.h"
#include "data/images/libjpeg.h"
#include "tests/data/files.h"

namespace trireme::testing {

using Bytes = std::vector<uint8_t>;

// An image that owns its memory and can be compared.
struct TestImage {
  data::ImageSize size;
  int channels = 0;
  Bytes pixels;

  TestImage(data::ImageSize size_, int channels_)
      : size(size_),
        channels(channels_),
        pixels(static_cast<size_t>(size.height * size.width * channels)) {}
  data::ImageView view() { return data::view_of(pixels.data(), size, channels); }
  const uint8_t* at(int y, int x) const {
    return pixels.data() + (std::ptrdiff_t{y} * size.width + x) * channels;
  }
  bool operator==(const TestImage&) const = default;
};

// Waves with some noise, so that coefficients of all frequencies are nonzero.
inline TestImage waves(data::ImageSize size, int channels) {
  TestImage image(size, channels);
  std::mt19937 random(1);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    const auto c = static_cast<double>(i % static_cast<size_t>(channels));
    const auto pixel = static_cast<int>(i) / channels;
    const double wave =
        std::sin(pixel % size.width / (7 + c)) + std::cos(pixel / size.width / (5 + 2 * c));
    image.pixels[i] = static_cast<uint8_t>(120 + 50 * wave + static_cast<double>(random() % 20));
  }
  return image;
}

struct JpegKind {
  std::array<int, 2> sampling{1, 1};  // of the first component, horizontal and vertical
  bool progressive = false;
  int restart_rows = 0;
  J_COLOR_SPACE stored = JCS_YCbCr;
  bool one_scan_each = false;  // one scan per component
  bool arithmetic = false;
};

inline J_COLOR_SPACE colors_of(int channels) {
  return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
}

// Encodes an image of 1, 3 or 4 channels.
inline Bytes encode_with(TestImage image, const JpegKind& kind) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  uint8_t* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &memory, &size);
  encoder.image_height = static_cast<JDIMENSION>(image.size.height);
  encoder.image_width = static_cast<JDIMENSION>(image.size.width);
  encoder.input_components = image.channels;
  encoder.in_color_space = colors_of(image.channels);
  jpeg_set_defaults(&encoder);
  jpeg_set_colorspace(&encoder, image.channels == 1 ? JCS_GRAYSCALE : kind.stored);
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
  for (int y = 0; y < image.size.height; ++y) {
    JSAMPROW row = image.view().row(y);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

// `rows` are in libpng's format, 16-bit samples in big-endian order.
inline Bytes encode_png_with(data::ImageSize size, int color_type, int bit_depth, int interlace,
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

inline std::vector<Bytes> rows_of(const TestImage& image) {
  std::vector<Bytes> rows;
  for (int y = 0; y < image.size.height; ++y) {
    rows.emplace_back(image.at(y, 0), image.at(y, 0) + image.size.width * image.channels);
  }
  return rows;
}

inline TestImage decode(data::Decoder& decoder, const Bytes& bytes, data::DecodeRequest request) {
  const data::ImageSize whole = decoder.open(bytes).size;
  if (request.region == data::Region()) request.region = {0, 0, whole.height, whole.width};
  TestImage image(decoder.plan(request).size, request.channels);
  decoder.decode(image.view());
  return image;
}
inline TestImage decode(const Bytes& bytes, int channels = 3, int shrink = 1) {
  data::Decoder decoder;
  return decode(decoder, bytes, {channels, {}, shrink});
}

inline std::string error_of(const Bytes& bytes, const data::DecodeRequest& request = {}) {
  data::Decoder decoder;
  return message<data::ImageError>([&] { decode(decoder, bytes, request); });
}

inline Bytes text(std::string_view bytes) { return {bytes.begin(), bytes.end()}; }

inline double mean_difference(const TestImage& a, const TestImage& b) {
  const double sum =
      std::inner_product(a.pixels.begin(), a.pixels.end(), b.pixels.begin(), 0.0, std::plus<>(),
                         [](int x, int y) { return std::abs(x - y); });
  return sum / static_cast<double>(a.pixels.size());
}

// Expects a decoded region to equal that of the full image, and limits how much more is decoded.
inline void expect_region(data::Decoder& decoder, const Bytes& bytes, const TestImage& whole,
                          const data::DecodeRequest& request) {
  decoder.open(bytes);
  const data::DecodePlan plan = decoder.plan(request);
  TestImage part(plan.size, request.channels);
  decoder.decode(part.view());

  const data::Region& region = request.region;
  const bool jpeg = bytes[0] == 0xFF;
  const int shrink = jpeg ? request.shrink : 1;
  ASSERT_EQ(plan.covers.size(),
            (data::ImageSize{plan.size.height * shrink, plan.size.width * shrink}));
  ASSERT_LE(plan.covers.top, region.top);
  ASSERT_LE(plan.covers.left, region.left);
  ASSERT_EQ(plan.covers.top % shrink, 0);
  ASSERT_EQ(plan.covers.left % shrink, 0);
  ASSERT_GE(plan.covers.left + plan.covers.width, region.left + region.width);
  ASSERT_LT(plan.covers.height - region.height, 2 * shrink);
  // On the left and the right, up to a block of four times the width and a margin of three pixels.
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

// Regions of all sizes, some of them at the image's borders.
inline data::Region random_region(data::ImageSize size, std::mt19937& random) {
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

inline void expect_regions(const Bytes& bytes, int count) {
  data::Decoder decoder;
  std::mt19937 random(7);
  const data::ImageSize size = decoder.open(bytes).size;
  for (const int channels : {1, 3}) {
    for (const int shrink : {1, 2, 4, 8}) {
      const TestImage whole = decode(bytes, channels, shrink);
      for (int i = 0; i < count; ++i) {
        ASSERT_NO_FATAL_FAILURE(
            expect_region(decoder, bytes, whole, {channels, random_region(size, random), shrink}));
      }
    }
  }
}

inline constexpr std::array<data::ImageSize, 7> kSizes{
    {{97, 131}, {64, 96}, {33, 17}, {16, 200}, {3, 5}, {1, 1}, {150, 9}}};

}  // namespace trireme::testing
