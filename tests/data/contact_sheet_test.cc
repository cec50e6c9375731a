#include "data/contact_sheet.h"

#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

#include "data/images/text.h"

namespace trireme {
namespace {

using ::testing::ElementsAre;

constexpr Color kBlack = {0, 0, 0};

Color pixel(const ImageView& image, int y, int x) {
  const uint8_t* p = image.row(y) + 3 * x;
  return {p[0], p[1], p[2]};
}

// Every pixel another one.
Image picture(ImageSize size, int channels, int from) {
  Image image;
  const ImageView view = image.reshape(size, channels);
  for (int i = 0; i < size.height * size.width * channels; ++i) {
    view.pixels[i] = static_cast<uint8_t>(from + 7 * i);
  }
  return image;
}

int dots(const ImageView& image, const Color& color) {
  int count = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) count += pixel(image, y, x) == color;
  }
  return count;
}

Image ground(ImageSize size) {
  Image image;
  const ImageView view = image.reshape(size, 3);
  std::fill_n(view.pixels, size.height * view.row_bytes(), uint8_t{200});
  return image;
}

TEST(ContactSheetTest, ShowsEveryPictureEnlargedInItsPlace) {
  const std::array<Image, 3> images = {picture({2, 3}, 3, 0), picture({2, 3}, 3, 50),
                                       picture({2, 3}, 3, 100)};
  std::vector<SheetPicture> pictures;
  for (const Image& image : images) pictures.push_back({image.view(), ""});
  const Image sheet = contact_sheet(pictures, {.columns = 2, .zoom = 10});
  constexpr int kMargin = 16, kGap = 12;
  ASSERT_EQ(sheet.view().size(),
            (ImageSize{2 * kMargin + 2 * 20 + kGap, 2 * kMargin + 2 * 30 + kGap}));
  const Color light = pixel(sheet.view(), 0, 0);
  EXPECT_GT(light[0], 240);
  for (size_t i = 0; i < images.size(); ++i) {
    const int top = kMargin + static_cast<int>(i / 2) * (20 + kGap);
    const int left = kMargin + static_cast<int>(i % 2) * (30 + kGap);
    for (int y = 0; y < 20; ++y) {
      for (int x = 0; x < 30; ++x) {
        ASSERT_EQ(pixel(sheet.view(), top + y, left + x), pixel(images[i].view(), y / 10, x / 10))
            << "picture " << i << ", " << y << ", " << x;
      }
    }
    EXPECT_EQ(pixel(sheet.view(), top - 1, left), light);
    EXPECT_EQ(pixel(sheet.view(), top + 20, left), light);
    EXPECT_EQ(pixel(sheet.view(), top, left - 1), light);
    EXPECT_EQ(pixel(sheet.view(), top, left + 30), light);
  }
}

TEST(ContactSheetTest, ShowsGreyPictures) {
  const Image grey = picture({2, 2}, 1, 9);
  const std::vector<SheetPicture> pictures = {{grey.view(), ""}};
  const Image sheet = contact_sheet(pictures, {.zoom = 1});
  EXPECT_THAT(pixel(sheet.view(), 16, 16), ElementsAre(9, 9, 9));
  EXPECT_THAT(pixel(sheet.view(), 17, 17), ElementsAre(30, 30, 30));
}

TEST(ContactSheetTest, SuitsTheSizeOfPictures) {
  const auto shown = [](ImageSize size) {
    const Image image = picture(size, 3, 0);
    const std::vector<SheetPicture> pictures = {{image.view(), ""}};
    const ImageSize sheet = contact_sheet(pictures).view().size();
    return ImageSize{sheet.height - 32, sheet.width - 32};
  };
  EXPECT_EQ(shown({8, 8}), (ImageSize{128, 128}));
  EXPECT_EQ(shown({28, 28}), (ImageSize{112, 112}));  // a whole factor
  EXPECT_EQ(shown({100, 150}), (ImageSize{100, 150}));
  EXPECT_EQ(shown({224, 448}), (ImageSize{80, 160}));
  EXPECT_EQ(shown({1, 3000}), (ImageSize{1, 160}));
}

TEST(ContactSheetTest, WritesCaptionsUnderPicturesAndNowhereElse) {
  const Image image = picture({32, 32}, 3, 0);
  const std::string longer(100, 'W');
  const std::vector<SheetPicture> plain(4, {image.view(), ""});
  const std::vector<SheetPicture> captioned = {{image.view(), "cat 70%\ndog 30%"},
                                               {image.view(), ""},
                                               {image.view(), longer},
                                               {image.view(), "\n\n"}};
  const Image without = contact_sheet(plain, {.columns = 2});
  const Image with = contact_sheet(captioned, {.columns = 2});
  const int below = (with.view().height - without.view().height) / 2;
  ASSERT_GT(below, 2 * kTextHeight);
  const Color light = pixel(with.view(), 0, 0);
  const auto ink = [&](int top, int left, int height, int width) {
    return height * width - dots(with.view().part({top, left, height, width}), light);
  };
  EXPECT_GT(ink(16 + 128, 16, below, 128), 20);
  EXPECT_EQ(ink(16 + 128, 16 + 128, below + 12, 12 + 128 + 16), 0);  // the gap and no caption
  const int second = 16 + 128 + below + 12;
  EXPECT_GT(ink(second + 128, 16, below, 128), 20);
  EXPECT_EQ(ink(second + 128, 0, below, 16), 0);  // what is too long is cut
  EXPECT_EQ(ink(second + 128, 16 + 128, below, 12), 0);
}

TEST(TextTest, DrawsDots) {
  Image image = ground({kTextHeight, 9});
  draw_text(image.view(), 0, 1, "Li", 1, kBlack);
  std::string drawn;
  for (int y = 0; y < kTextHeight; ++y) {
    for (int x = 0; x < 9; ++x) drawn += pixel(image.view(), y, x) == kBlack ? '#' : '.';
    drawn += '\n';
  }
  EXPECT_EQ(drawn,
            ".#.....#.\n"
            ".#.......\n"
            ".#.....#.\n"
            ".#.....#.\n"
            ".#.....#.\n"
            ".#.....#.\n"
            ".#####.#.\n"
            ".........\n"
            ".........\n");
  EXPECT_EQ(text_width("Li"), 7);
  EXPECT_EQ(text_width(""), 0);
}

TEST(TextTest, EnlargesDots) {
  Image small = ground({kTextHeight, 40}), large = ground({3 * kTextHeight, 120});
  draw_text(small.view(), 0, 0, "gypsum", 1, kBlack);
  draw_text(large.view(), 0, 0, "gypsum", 3, kBlack);
  EXPECT_EQ(dots(large.view(), kBlack), 9 * dots(small.view(), kBlack));
}

TEST(TextTest, EveryLetterIsDrawnAndUnlikeOthers) {
  std::vector<std::string> seen;
  for (char c = ' ' + 1; c < 0x7F; ++c) {
    Image image = ground({kTextHeight, 5});
    draw_text(image.view(), 0, 0, std::string(1, c), 1, kBlack);
    EXPECT_GT(dots(image.view(), kBlack), 0) << c;
    const std::string looks(reinterpret_cast<const char*>(image.view().pixels), kTextHeight * 15);
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(looks))) << c;
    seen.push_back(looks);
  }
}

TEST(TextTest, WhatLiesOutsideIsLeftOut) {
  Image image = ground({20, 20});
  const ImageView part = image.view().part({5, 5, 5, 5});
  for (const int top : {-4, 0, 3}) {
    for (const int left : {-30, -3, 3}) draw_text(part, top, left, "W@#", 2, kBlack);
  }
  EXPECT_EQ(dots(image.view(), kBlack), dots(part, kBlack));
  EXPECT_GT(dots(part, kBlack), 0);
}

TEST(TextTest, OtherCharactersAreQuestionMarks) {
  EXPECT_EQ(text_width("\xC3\xA9"), text_width("?"));
  EXPECT_EQ(text_width("\xE2\x82\xAC\x01"), text_width("??"));
}

TEST(TextTest, IsCutWhereItDoesNotFit) {
  EXPECT_EQ(fit_text("cat", text_width("cat")), "cat");
  EXPECT_EQ(fit_text("cat", 1000), "cat");
  const std::string cut = fit_text("great white shark", 60);
  EXPECT_LE(text_width(cut), 60);
  EXPECT_GT(text_width(cut), 48);
  EXPECT_TRUE(cut.starts_with("great wh")) << cut;
  EXPECT_LE(fit_text("great white shark", 0).size(), 1);
  // Not within a character.
  EXPECT_EQ(fit_text("\xC3\xA9\xC3\xA9\xC3\xA9", 17).substr(0, 4).find("\xC3\x7F"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme
