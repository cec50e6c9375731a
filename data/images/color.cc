#include "data/images/color.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/vectorized.h"

// This file is compiled without fused multiply-add instructions, because Pillow rounds products.

namespace trireme::data {
namespace {

using Table = std::array<uint8_t, 256>;   // maps values
using Counts = std::array<int64_t, 256>;  // histogram

template <class F>
Table table_of(F f) {
  Table table{};
  for (int i = 0; i < 256; ++i) table[i] = f(i);
  return table;
}

// Applies a table to all channels.
void look_up(const ImageView& image, const Table& table) {
  for (int y = 0; y < image.height; ++y) {
    uint8_t* row = image.row(y);
    for (std::ptrdiff_t i = 0; i < image.row_bytes(); ++i) row[i] = table[row[i]];
  }
}

// Applies a table to each channel, which is computed from the channel's histogram.
template <class F>
void look_up_by_counts(const ImageView& image, F table_of_counts) {
  const int channels = image.channels;
  std::array<Counts, 3> counts{};
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* row = image.row(y);
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < channels; ++c) ++counts[c][*row++];
    }
  }
  std::array<Table, 3> tables{};
  for (int c = 0; c < channels; ++c) {
    tables[c] = table_of_counts(counts[c]);
  }
  for (int y = 0; y < image.height; ++y) {
    uint8_t* row = image.row(y);
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < channels; ++c, ++row) *row = tables[c][*row];
    }
  }
}

// Interpolates, or extrapolates, from `a` (factor 0) to `b` (factor 1).
TRIREME_INLINE inline uint8_t blend(int a, int b, float factor) {
  const float mixed = static_cast<float>(a) + factor * static_cast<float>(b - a);
  return static_cast<uint8_t>(std::clamp(mixed, 0.0F, 255.0F));
}

// Returns the luma of ITU-R BT.601.
TRIREME_INLINE inline int gray(int red, int green, int blue) {
  return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

TRIREME_VECTORIZED int64_t sum_gray(const uint8_t* row, int width) {
  int32_t sum = 0;
  for (int x = 0; x < width; ++x) sum += gray(row[3 * x], row[3 * x + 1], row[3 * x + 2]);
  return sum;
}

TRIREME_VECTORIZED int64_t sum_bytes(const uint8_t* row, int width) {
  int32_t sum = 0;
  for (int x = 0; x < width; ++x) sum += row[x];
  return sum;
}

TRIREME_VECTORIZED void saturate_row(uint8_t* row, int width, float factor) {
  for (int x = 0; x < width; ++x) {
    uint8_t* pixel = row + std::ptrdiff_t{3} * x;
    const int luma = gray(pixel[0], pixel[1], pixel[2]);
    pixel[0] = blend(luma, pixel[0], factor);
    pixel[1] = blend(luma, pixel[1], factor);
    pixel[2] = blend(luma, pixel[2], factor);
  }
}

// Computes bytes [begin, end) of a row from the original row `here` and its original neighbors.
TRIREME_VECTORIZED void sharpen_row(const uint8_t* above, const uint8_t* here, const uint8_t* below,
                                    uint8_t* __restrict to, int channels, std::ptrdiff_t begin,
                                    std::ptrdiff_t end, float factor) {
  for (std::ptrdiff_t i = begin; i < end; ++i) {
    int sum = 5 * here[i] + here[i - channels] + here[i + channels];
    sum += above[i - channels] + above[i] + above[i + channels];
    sum += below[i - channels] + below[i] + below[i + channels];
    const int smooth = ((sum + 6) * 5042) >> 16;  // sum / 13, rounded
    to[i] = blend(smooth, here[i], factor);
  }
}

// Pixels in planar form, for vectorization.
constexpr int kBlock = 64;
struct Block {
  int red[kBlock], green[kBlock], blue[kBlock];
};

// Converts to hue, saturation and value in bytes (255 is a full turn), adds `turn` to the hue, and
// converts back. Branch-free, so that it is vectorized. Each step has the precision of Pillow.
TRIREME_VECTORIZED void turn_block(Block& block, int turn) {
  for (int i = 0; i < kBlock; ++i) {
    const int red = block.red[i];
    const int green = block.green[i];
    const int blue = block.blue[i];
    const int high = std::max(std::max(red, green), blue);
    const int range = high - std::min(std::min(red, green), blue);
    const auto spread = static_cast<float>(std::max(range, 1));
    const float r = static_cast<float>(high - red) / spread;
    const float g = static_cast<float>(high - green) / spread;
    const float b = static_cast<float>(high - blue) / spread;
    const auto from_red = static_cast<double>(b - g);
    const double from_green = 2.0 + r - b;
    const double from_blue = 4.0 + g - r;
    const double from = red == high ? from_red : green == high ? from_green : from_blue;
    const double turns = static_cast<double>(static_cast<float>(from)) / 6.0 + 1.0;
    const auto hue = static_cast<float>(turns - (turns >= 1.0 ? 1.0 : 0.0));
    const float saturation = static_cast<float>(range) / static_cast<float>(std::max(high, 1));

    const int hue_byte = (static_cast<int>(hue * 255.0) + turn) & 255;
    const int saturation_byte = static_cast<int>(saturation * 255.0);
    const double sixths = hue_byte * 6.0 / 255.0;
    const int sector = static_cast<int>(sixths);
    const auto part = static_cast<float>(sixths - sector);
    const auto share = static_cast<float>(saturation_byte / 255.0);
    const double value = high;
    const int low = static_cast<int>(value * (1.0 - share) + 0.5);
    const int falling = static_cast<int>(value * (1.0 - share * part) + 0.5);
    const int rising = static_cast<int>(value * (1.0 - share * (1.0 - part)) + 0.5);
    const int s = sector == 6 ? 0 : sector;
    block.red[i] = s == 0 || s == 5 ? high : s == 1 ? falling : s == 4 ? rising : low;
    block.green[i] = s == 1 || s == 2 ? high : s == 3 ? falling : s == 0 ? rising : low;
    block.blue[i] = s == 3 || s == 4 ? high : s == 5 ? falling : s == 2 ? rising : low;
  }
}

void turn_row(uint8_t* row, int width, uint8_t turn) {
  Block block{};
  for (int begin = 0; begin < width; begin += kBlock) {
    const int count = std::min(kBlock, width - begin);
    uint8_t* pixels = row + std::ptrdiff_t{3} * begin;
    for (int i = 0; i < count; ++i) {
      block.red[i] = pixels[3 * i];
      block.green[i] = pixels[3 * i + 1];
      block.blue[i] = pixels[3 * i + 2];
    }
    turn_block(block, turn);
    for (int i = 0; i < count; ++i) {
      pixels[3 * i] = static_cast<uint8_t>(block.red[i]);
      pixels[3 * i + 1] = static_cast<uint8_t>(block.green[i]);
      pixels[3 * i + 2] = static_cast<uint8_t>(block.blue[i]);
    }
  }
}

TRIREME_VECTORIZED void gray_row(uint8_t* row, int width) {
  for (int x = 0; x < width; ++x) {
    uint8_t* pixel = row + std::ptrdiff_t{3} * x;
    const auto luma = static_cast<uint8_t>(gray(pixel[0], pixel[1], pixel[2]));
    pixel[0] = pixel[1] = pixel[2] = luma;
  }
}

// Returns the table of autocontrast for a channel.
Table stretching(const Counts& counts) {
  int low = 0;
  int high = 255;
  while (low < 255 && counts[low] == 0) ++low;
  while (high > 0 && counts[high] == 0) --high;
  const double scale = high > low ? 255.0 / (high - low) : 1;
  const double offset = high > low ? -low * scale : 0;
  return table_of([&](int i) {
    return static_cast<uint8_t>(std::clamp(static_cast<int>(i * scale + offset), 0, 255));
  });
}

// Returns the table of equalize for a channel.
Table equalizing(const Counts& counts) {
  int64_t total = 0;
  int64_t last = 0;  // the last count that is not 0
  for (const int64_t count : counts) {
    total += count;
    if (count > 0) last = count;
  }
  const int64_t step = (total - last) / 255;
  int64_t below = step / 2;
  return table_of([&](int i) {
    if (step == 0) return static_cast<uint8_t>(i);
    const int64_t level = below / step;
    below += counts[i];
    return static_cast<uint8_t>(std::min<int64_t>(level, 255));
  });
}

}  // namespace

void adjust_brightness(const ImageView& image, float factor) {
  look_up(image, table_of([&](int i) { return blend(0, i, factor); }));
}

void adjust_contrast(const ImageView& image, float factor) {
  int64_t sum = 0;
  for (int y = 0; y < image.height; ++y) {
    sum += image.channels == 1 ? sum_bytes(image.row(y), image.width)
                               : sum_gray(image.row(y), image.width);
  }
  const double pixels = static_cast<double>(image.height) * image.width;
  const int mean = static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
  look_up(image, table_of([&](int i) { return blend(mean, i, factor); }));
}

void adjust_saturation(const ImageView& image, float factor) {
  if (image.channels == 1) return;
  for (int y = 0; y < image.height; ++y) saturate_row(image.row(y), image.width, factor);
}

void adjust_sharpness(const ImageView& image, float factor) {
  if (image.height < 3 || image.width < 3) return;
  const size_t bytes = image.row_bytes();
  std::vector<uint8_t> above(image.row(0), image.row(0) + bytes);
  std::vector<uint8_t> here(bytes);
  for (int y = 1; y < image.height - 1; ++y) {
    std::memcpy(here.data(), image.row(y), bytes);
    sharpen_row(above.data(), here.data(), image.row(y + 1), image.row(y), image.channels,
                image.channels, image.row_bytes() - image.channels, factor);
    above.swap(here);
  }
}

void adjust_hue(const ImageView& image, float turns) {
  if (image.channels == 1) return;
  const auto turn = static_cast<uint8_t>(static_cast<int>(double{turns} * 255));
  for (int y = 0; y < image.height; ++y) turn_row(image.row(y), image.width, turn);
}

void make_gray(const ImageView& image) {
  if (image.channels == 1) return;
  for (int y = 0; y < image.height; ++y) gray_row(image.row(y), image.width);
}

void posterize(const ImageView& image, int bits) {
  look_up(image, table_of([&](int i) { return static_cast<uint8_t>(i & (0xFF << (8 - bits))); }));
}

void solarize(const ImageView& image, float threshold) {
  look_up(image, table_of([&](int i) {
            return static_cast<uint8_t>(static_cast<float>(i) < threshold ? i : 255 - i);
          }));
}

void autocontrast(const ImageView& image) { look_up_by_counts(image, stretching); }

void equalize(const ImageView& image) { look_up_by_counts(image, equalizing); }

}  // namespace trireme::data
