#include "data/transforms/border.h"

#include <algorithm>
#include <cstring>

namespace trireme::data {
namespace {

// Returns the position in [0, extent) that a position outside of it mirrors.
int reflected(int position, int extent) {
  const int period = std::max(2 * (extent - 1), 1);
  int at = position % period;
  if (at < 0) at += period;
  return at < extent ? at : period - at;
}

// Writes the padding at positions [begin, end) of a row; `from` holds the row's `width` pixels.
void border_pixels(const uint8_t* from, int width, int channels, int begin, int end,
                   const Border& border, uint8_t* to) {
  if (begin >= end) return;
  if (!border.reflect) {
    std::memset(to, border.fill, static_cast<size_t>(end - begin) * channels);
    return;
  }
  for (int x = begin; x < end; ++x) {
    const uint8_t* pixel = from + std::ptrdiff_t{reflected(x, width)} * channels;
    for (int c = 0; c < channels; ++c) *to++ = pixel[c];
  }
}

}  // namespace

void copy_with_border(const ImageView& from, const Region& region, const Border& border,
                      const ImageView& to) {
  const int channels = from.channels;
  const int end = region.left + region.width;
  const int inner_begin = std::clamp(region.left, 0, from.width);
  const int inner_end = std::clamp(end, inner_begin, from.width);
  const int left_end = std::clamp(0, region.left, end);
  const int right_begin = std::clamp(from.width, left_end, end);
  for (int y = 0; y < region.height; ++y) {
    const int source = region.top + y;
    const bool outside = source < 0 || source >= from.height;
    uint8_t* row = to.row(y);
    if (outside && !border.reflect) {
      std::memset(row, border.fill, to.row_bytes());
      continue;
    }
    const uint8_t* pixels = from.row(outside ? reflected(source, from.height) : source);
    const auto at = [&](int x) { return row + std::ptrdiff_t{x - region.left} * channels; };
    border_pixels(pixels, from.width, channels, region.left, left_end, border, row);
    if (inner_end > inner_begin) {
      std::memcpy(at(inner_begin), pixels + std::ptrdiff_t{inner_begin} * channels,
                  static_cast<size_t>(inner_end - inner_begin) * channels);
    }
    border_pixels(pixels, from.width, channels, right_begin, end, border, at(right_begin));
  }
}

}  // namespace trireme::data
