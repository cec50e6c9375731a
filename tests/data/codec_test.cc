#include "data/images/codec.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/data/encoded_images.h"
#include "tests/data/exif.h"

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
  EXPECT_EQ(compared, 31);
}

TEST(OrientationTest, IsAppliedUnlessTheDecoderIsToldToIgnoreIt) {
  testing::TestImage image = testing::waves({5, 9}, 3);
  const testing::Bytes turned = testing::with_orientation(encode_png(image.view()), 6);
  Decoder applying, ignoring(kMaxPixels, /*apply_exif_orientation=*/false);
  EXPECT_EQ(applying.open(turned).size, (ImageSize{9, 5}));
  EXPECT_EQ(ignoring.open(turned).size, image.size);
  EXPECT_EQ(decode(ignoring, turned, {}), image);
  const testing::TestImage upright = decode(turned);
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 5; ++x) {
      EXPECT_TRUE(std::equal(upright.at(y, x), upright.at(y, x) + 3, image.at(4 - x, y)));
    }
  }
}

// Regions of turned images have the pixels of the whole, also if they are decoded at a reduced size
// that does not divide the image's.
TEST(OrientationTest, RegionsHaveThePixelsOfTheWholeImage) {
  testing::TestImage image = testing::waves({67, 93}, 3);
  const testing::Bytes jpeg = testing::encode_with(image, {.sampling = {2, 2}});
  std::mt19937 random(5);
  Decoder decoder;
  for (int i = 0; i < 200; ++i) {
    const testing::Bytes bytes = testing::with_orientation(
        i % 5 == 0 ? encode_png(image.view()) : jpeg, 1 + static_cast<int>(random() % 8));
    const int wanted = 1 << random() % 4, shrink = i % 5 == 0 ? 1 : wanted;
    const ImageSize size = decoder.open(bytes).size;
    const Region all = decoder.plan({3, {0, 0, size.height, size.width}, wanted}).covers;
    const testing::TestImage whole = decode(decoder, bytes, {3, {}, wanted});
    const Region region = testing::random_region(size, random);
    decoder.open(bytes);
    const DecodePlan plan = decoder.plan({3, region, wanted});
    testing::TestImage part(plan.size, 3);
    decoder.decode(part.view());
    ASSERT_EQ(plan.covers.size(), (ImageSize{plan.size.height * shrink, plan.size.width * shrink}));
    const int down = plan.covers.top - all.top, right = plan.covers.left - all.left;
    ASSERT_EQ(down % shrink, 0);
    ASSERT_EQ(right % shrink, 0);
    ASSERT_LE(plan.covers.top, region.top);
    ASSERT_LE(plan.covers.left, region.left);
    ASSERT_GE(plan.covers.top + plan.covers.height, region.top + region.height);
    ASSERT_GE(plan.covers.left + plan.covers.width, region.left + region.width);
    const auto in_whole = [&](int y, int x) {
      return whole.at(y + down / shrink, x + right / shrink);
    };
    // The pixels that show the region: those around it, which the decoder adds, may differ.
    for (int y = (region.top - plan.covers.top) / shrink;
         y * shrink < region.top + region.height - plan.covers.top; ++y) {
      for (int x = (region.left - plan.covers.left) / shrink;
           x * shrink < region.left + region.width - plan.covers.left; ++x) {
        ASSERT_TRUE(std::equal(part.at(y, x), part.at(y, x) + 3, in_whole(y, x))) << i;
      }
    }
  }
}

TEST(OrientationTest, BlocksOfAllKindsAreRead) {
  testing::TestImage image = testing::waves({5, 9}, 3);
  const auto is_turned = [&](const std::string& block) {
    const ImageSize of_png = Decoder().open(with_exif(encode_png(image.view()), block)).size;
    const ImageSize of_jpeg = Decoder().open(with_exif(encode_jpeg(image.view(), 90), block)).size;
    EXPECT_EQ(of_png, of_jpeg);
    return of_png == ImageSize{9, 5};
  };
  const testing::ExifEntry other{.tag = 0x0110, .type = 2, .count = 9, .value = "\xFF\xFF\xFF\xFF"};
  for (const bool big : {false, true}) {
    EXPECT_TRUE(is_turned(testing::exif_block(8, big)));
    const std::string value = testing::number_bytes(8, 4, big);
    EXPECT_TRUE(is_turned(testing::exif_block({other, {.type = 4, .value = value}}, big)));
    EXPECT_TRUE(is_turned(testing::exif_block({other, {.type = 1, .value = {8, 0, 0, 0}}}, big)));
  }
}

// Sizes and offsets in a block come from outside.
TEST(OrientationTest, DamagedBlocksAreIgnored) {
  testing::TestImage image = testing::waves({5, 9}, 3);
  const std::string good = testing::exif_block(8);
  std::vector<std::string> blocks{
      testing::exif_block(0),
      testing::exif_block(9),
      testing::exif_block(65535),
      testing::exif_block({{.type = 2, .value = {0, 8, 0, 0}}}),          // ASCII
      testing::exif_block({{.count = 2, .value = {0, 8, 0, 8}}}),         // two numbers
      testing::exif_block({{.count = 1U << 31, .value = {0, 8, 0, 8}}}),  // very many
      "MM" + testing::number_bytes(43, 2) + good.substr(4),               // BigTIFF
      "MI" + good.substr(2),
  };
  for (const uint64_t offset : {uint64_t{4}, good.size() - 1, good.size(), good.size() + 1,
                                uint64_t{0xFFFFFFF4}, uint64_t{0xFFFFFFFF}}) {
    blocks.push_back(good.substr(0, 4) + testing::number_bytes(offset, 4) + good.substr(8));
  }
  // The block ends within the directory.
  for (size_t bytes = 0; bytes < 22; ++bytes) blocks.push_back(good.substr(0, bytes));
  std::string many = testing::exif_block({{.tag = 1, .value = {0, 8, 0, 0}}});
  many.replace(8, 2, "\xFF\xFF");  // 65535 entries
  blocks.push_back(many);
  for (const std::string& block : blocks) {
    EXPECT_EQ(decode(with_exif(encode_png(image.view()), block)), image);
    EXPECT_EQ(Decoder().open(with_exif(encode_jpeg(image.view(), 90), block)).size, image.size);
  }
}

}  // namespace
}  // namespace trireme::data
