#include "data/images/codec.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/data/encoded_images.h"

namespace trireme::data {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(DecoderTest, ErrorsNameOtherFormats) {
  EXPECT_EQ(testing::error_of({}), "the file is empty");
  EXPECT_EQ(testing::error_of(text("GIF89a...")), "neither JPEG nor PNG, but GIF");
  EXPECT_EQ(testing::error_of(text("RIFF1234WEBPVP8 ")), "neither JPEG nor PNG, but WebP");
  EXPECT_EQ(testing::error_of(text({"II*\0\1\2", 6})), "neither JPEG nor PNG, but TIFF");
  EXPECT_EQ(testing::error_of(text("<!DOCTYPE html>")), "neither JPEG nor PNG, but HTML");
  EXPECT_EQ(testing::error_of(text("version https://git-lfs.github.com/spec/v1\n")),
            "neither JPEG nor PNG, but a Git LFS pointer (run 'git lfs pull' to get the file)");
  EXPECT_EQ(testing::error_of(testing::Bytes(100)), "neither JPEG nor PNG, but zeros");
  EXPECT_EQ(testing::error_of({1, 2, 0xAB}),
            "neither JPEG nor PNG, but an unknown format that begins with 01 02 ab");
}

TEST(DecoderTest, ChecksArgumentsAndOrderOfCalls) {
  testing::TestImage image = testing::waves({20, 30}, 3);
  const testing::Bytes bytes = encode_png(image.view());
  Decoder decoder;
  EXPECT_THROW(decoder.plan({3, {0, 0, 1, 1}, 1}), Error);
  decoder.open(bytes);
  EXPECT_THROW(decoder.decode(image.view()), Error);
  const std::array wrong{DecodeRequest{2, {0, 0, 1, 1}, 1},  DecodeRequest{3, {0, 0, 1, 1}, 3},
                         DecodeRequest{3, {0, 0, 21, 1}, 1}, DecodeRequest{3, {0, 25, 1, 6}, 1},
                         DecodeRequest{3, {-1, 0, 1, 1}, 1}, DecodeRequest{3, {0, 0, 0, 1}, 1}};
  for (const DecodeRequest& request : wrong) EXPECT_THROW(decoder.plan(request), Error);
  decoder.plan({3, {0, 0, 20, 30}, 1});
  EXPECT_THROW(decoder.decode(image.view().part({0, 0, 20, 29})), Error);
  testing::TestImage again(image.size, 3);
  decoder.decode(again.view());
  EXPECT_EQ(again, image);
  EXPECT_THROW(decoder.decode(again.view()), Error);
}

// A file without tables must not be decoded with those of the previous file.
TEST(DecoderTest, DoesNotReuseTablesOfThePreviousImage) {
  const testing::Bytes good =
      testing::encode_with(testing::waves({16, 16}, 3), {.progressive = true});
  for (const uint8_t table : {uint8_t{0xDB}, uint8_t{0xC4}}) {
    testing::Bytes bytes = good;
    const std::array<uint8_t, 2> marker{0xFF, table};
    const auto found = std::search(bytes.begin(), bytes.end(), marker.begin(), marker.end());
    found[1] = 0xFE;  // a comment
    Decoder decoder;
    decode(decoder, good, {});
    const auto error = testing::message<ImageError>([&] { decode(decoder, bytes, {}); });
    EXPECT_THAT(error, HasSubstr("was not defined"));
    EXPECT_EQ(error, testing::error_of(bytes));
  }
}

TEST(DecoderTest, DoesNotWriteBetweenRows) {
  testing::TestImage image = testing::waves({40, 37}, 3);
  for (const testing::Bytes& bytes :
       {encode_png(image.view()), encode_jpeg(image.view(), 90),
        testing::encode_with(testing::waves({40, 37}, 4), {.stored = JCS_CMYK})}) {
    for (const int channels : {1, 3}) {
      const testing::TestImage expected = decode(bytes, channels);
      testing::TestImage canvas({50, 60}, channels);
      std::ranges::fill(canvas.pixels, uint8_t{77});
      testing::TestImage around = canvas;
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

// Returns small files of various kinds, to be damaged.
std::vector<testing::Bytes> small_files() {
  const ImageSize size{33, 41};
  testing::TestImage rgb = testing::waves(size, 3);
  return {
      encode_jpeg(rgb.view(), 70),
      testing::encode_with(rgb, {.sampling = {2, 2}, .progressive = true, .restart_rows = 1}),
      testing::encode_with(testing::waves(size, 4), {.stored = JCS_YCCK}),
      encode_png(rgb.view()),
      testing::encode_png_with(size, PNG_COLOR_TYPE_RGB_ALPHA, 8, PNG_INTERLACE_ADAM7,
                               testing::rows_of(testing::waves(size, 4))),
  };
}

// Expects decoding to succeed or to throw ImageError. Returns true if it succeeded.
bool survives(Decoder& decoder, const testing::Bytes& bytes, const DecodeRequest& request) {
  try {
    decode(decoder, bytes, request);
    return true;
  } catch (const ImageError& error) {
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("JPEG"), HasSubstr("PNG"), HasSubstr("pixels"),
                                    HasSubstr("empty")));
    return false;
  }
}

TEST(DecoderTest, SurvivesTruncationAtEachByte) {
  Decoder decoder;
  for (const testing::Bytes& whole : small_files()) {
    const testing::TestImage expected = decode(whole);
    for (size_t size = 0; size + 16 < whole.size(); ++size) {
      const testing::Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(survives(decoder, bytes, {})) << size << " of " << whole.size();
      try {
        decoder.open(bytes);
        testing::TestImage top(decoder.plan({3, {0, 0, 8, 41}, 1}).size, 3);
        decoder.decode(top.view());
        EXPECT_TRUE(std::ranges::equal(top.pixels, std::span(expected.pixels).first(8 * 41 * 3)));
      } catch (const ImageError&) {
        // The region is truncated, too.
      }
    }
    EXPECT_EQ(decode(whole), expected);
  }
}

TEST(DecoderTest, SurvivesFlippedBytes) {
  Decoder decoder;
  std::mt19937 random(3);
  for (const testing::Bytes& whole : small_files()) {
    int rejected = 0;
    for (int i = 0; i < 1000; ++i) {
      testing::Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1 + random() % 255);
      DecodeRequest request;
      request.shrink = 1 << random() % 4;
      request.channels = random() % 2 == 0 ? 1 : 3;
      if (random() % 2 == 0) request.region = testing::random_region({16, 16}, random);
      try {
        const ImageSize size = decoder.open(bytes).size;
        if (size.height < 16 || size.width < 16 || size.height > 999 || size.width > 999) continue;
      } catch (const ImageError&) {
        ++rejected;
        continue;
      }
      rejected += !survives(decoder, bytes, request);
    }
    EXPECT_GT(rejected, 50);
    EXPECT_NO_THROW(decode(decoder, whole, {}));
  }
}

testing::Bytes read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The files were created by tests/golden/make_codec_images.py.
TEST(DecoderTest, MatchesPillow) {
  const std::filesystem::path folder = TRIREME_SOURCE "/tests/golden/codec";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  int compared = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.is_directory()) continue;
    const std::string name = file.path().filename();
    const testing::Bytes bytes = read(file.path());
    EXPECT_EQ(decode(bytes, 3), decode(read(folder / "rgb" / (name + ".png")), 3)) << name;
    EXPECT_EQ(decode(bytes, 1), decode(read(folder / "gray" / (name + ".png")), 1)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 15);
}

}  // namespace
}  // namespace trireme::data
