#include "data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/vectorized.h"

namespace trireme::data {
namespace {

// The arithmetic of Pillow: weights with 22 fractional bits, 32-bit sums, and rounding to bytes
// after each pass.
constexpr int kPrecision = 22;
constexpr uint32_t kHalf = 1 << (kPrecision - 1);

// The number of bytes that are summed at once, as 8 words of 4 bytes. Entire words are multiplied,
// modulo 2^32, which avoids unpacking: with bytes a, b, c, d from the lowest to the highest,
// sum(w * (d << 8 | c)) = sum(w * c) + 256 * sum(w * d), and so on down to a.
constexpr int kLanes = 32;
using Words = uint32_t __attribute__((vector_size(kLanes)));
using Sums = int32_t __attribute__((vector_size(kLanes)));

// Converts sums to bytes, in the lowest byte of each word. With negative weights, sums can be below
// 0 or above 255 and are clipped.
template <bool clip>
TRIREME_INLINE inline void finish(Words& sums) {
  if constexpr (clip) {
    Sums bytes = reinterpret_cast<Sums>(sums) >> kPrecision;
    bytes = bytes < 0 ? Sums{} : bytes;
    bytes = bytes > 255 ? Sums{} + 255 : bytes;
    sums = reinterpret_cast<Words>(bytes);
  } else {
    sums >>= kPrecision;
  }
}

// Computes kLanes bytes of a row as the weighted sum of `count` rows.
template <bool clip>
TRIREME_INLINE inline void sum_lanes(const uint8_t* from, std::ptrdiff_t stride,
                                     const int32_t* weights, int count, uint8_t* to) {
  // The rounding term of each byte, plus the contribution of the terms of the bytes above it.
  constexpr uint32_t kHalf1 = kHalf + (kHalf << 8);
  constexpr uint32_t kHalf2 = kHalf + (kHalf1 << 8);
  constexpr uint32_t kHalf3 = kHalf + (kHalf2 << 8);
  Words a = Words{} + kHalf3;
  Words b = Words{} + kHalf2;
  Words c = Words{} + kHalf1;
  Words d = Words{} + kHalf;
  for (int t = 0; t < count; ++t, from += stride) {
    const auto weight = static_cast<uint32_t>(weights[t]);
    Words words;
    std::memcpy(&words, from, sizeof(words));
    a += words * weight;
    b += (words >> 8) * weight;
    c += (words >> 16) * weight;
    d += (words >> 24) * weight;
  }
  a -= b << 8;
  b -= c << 8;
  c -= d << 8;
  finish<clip>(a);
  finish<clip>(b);
  finish<clip>(c);
  finish<clip>(d);
  const Words words = a | b << 8 | c << 16 | d << 24;
  std::memcpy(to, &words, sizeof(words));
}

TRIREME_INLINE inline uint8_t sum_byte(const uint8_t* from, std::ptrdiff_t stride,
                                       const int32_t* weights, int count) {
  int32_t sum = static_cast<int32_t>(kHalf);
  for (int t = 0; t < count; ++t, from += stride) sum += *from * weights[t];
  return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

// Computes rows of `to`, of `bytes` bytes each, as weighted sums of rows of `from`.
TRIREME_VECTORIZED void sum_rows(const uint8_t* from, std::ptrdiff_t from_stride,
                                 const FilterTaps& taps, uint8_t* to, std::ptrdiff_t to_stride,
                                 std::ptrdiff_t bytes) {
  const int32_t* weights = taps.weights.data();
  for (const int first : taps.first) {
    const uint8_t* row = from + first * from_stride;
    if (bytes >= kLanes) {
      for (std::ptrdiff_t i = 0; i < bytes; i += kLanes) {
        const std::ptrdiff_t at = std::min(i, bytes - kLanes);  // the last two steps may overlap
        if (taps.overshoot) {
          sum_lanes<true>(row + at, from_stride, weights, taps.count, to + at);
        } else {
          sum_lanes<false>(row + at, from_stride, weights, taps.count, to + at);
        }
      }
    } else {
      for (std::ptrdiff_t i = 0; i < bytes; ++i) {
        to[i] = sum_byte(row + i, from_stride, weights, taps.count);
      }
    }
    weights += taps.count;
    to += to_stride;
  }
}

constexpr int kColumn = 64;  // bytes: 21 RGB pixels or 64 gray pixels

using Bytes16 = uint8_t __attribute__((vector_size(16)));
using Words4 = uint32_t __attribute__((vector_size(16)));

// Transposes a block of 4 x 4 RGB pixels. Reads and writes 16 bytes of each row and column, four
// more than its 12 bytes.
TRIREME_INLINE inline void transpose_4x4(const uint8_t* from, std::ptrdiff_t from_stride,
                                         uint8_t* to, std::ptrdiff_t to_stride) {
  Words4 rows[4];  // one pixel per word
  for (Words4& row : rows) {
    Bytes16 bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    bytes =
        __builtin_shufflevector(bytes, bytes, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11);
    std::memcpy(&row, &bytes, sizeof(row));
    from += from_stride;
  }
  const Words4 a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Words4 b = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Words4 c = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Words4 d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Words4 columns[4] = {
      __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
      __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (const Words4& column : columns) {
    Bytes16 bytes;
    std::memcpy(&bytes, &column, sizeof(bytes));
    bytes = __builtin_shufflevector(bytes, bytes, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15,
                                    15, 15);
    std::memcpy(to, &bytes, sizeof(bytes));
    to += to_stride;
  }
}

TRIREME_INLINE inline void copy_pixel(const uint8_t* from, uint8_t* to, std::ptrdiff_t channels) {
  if (channels == 3) {
    std::memcpy(to, from, 3);
  } else {
    *to = *from;
  }
}

// Transposes `from` into `to`. `from_room` and `to_room` are the accessible bytes of each row.
// Bytes written beyond a pixel are overwritten by following pixels or are beyond the end of the
// row.
TRIREME_VECTORIZED void transpose(const ImageView& from, std::ptrdiff_t from_room,
                                  const ImageView& to, std::ptrdiff_t to_room) {
  const std::ptrdiff_t channels = from.channels;
  int x = 0;
  if (channels == 3) {
    for (; x + 4 <= from.width && x * 3 + 16 <= from_room; x += 4) {
      int y = 0;
      for (; y + 4 <= from.height && y * 3 + 16 <= to_room; y += 4) {
        transpose_4x4(from.row(y) + x * 3, from.stride, to.row(x) + y * 3, to.stride);
      }
      for (; y < from.height; ++y) {
        for (int i = x; i < x + 4; ++i) copy_pixel(from.row(y) + i * 3, to.row(i) + y * 3, 3);
      }
    }
  }
  for (; x < from.width; ++x) {
    for (int y = 0; y < from.height; ++y) {
      copy_pixel(from.row(y) + x * channels, to.row(x) + y * channels, channels);
    }
  }
}

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

// Computes the filter that resizes [begin, begin + extent) of `size` inputs to `outputs` outputs.
void make_taps(int size, double begin, double extent, int outputs, Filter filter,
               FilterTaps& taps) {
  const auto curve = filter == Filter::kBicubic ? cubic : triangle;
  const double scale = extent / outputs;
  const double stretch = std::max(scale, 1.0);  // the filter's scale; above 1 when shrinking
  const double support = stretch * (filter == Filter::kBicubic ? 2 : 1);
  taps.overshoot = filter == Filter::kBicubic;
  taps.count = std::min(static_cast<int>(std::ceil(2 * support)), size);
  taps.first.resize(outputs);
  taps.weights.assign(static_cast<size_t>(outputs) * taps.count, 0);
  std::vector<double> exact(taps.count + 1);  // rounding can add one tap with weight 0
  for (int i = 0; i < outputs; ++i) {
    const double center = begin + (i + 0.5) * scale;
    const int low = std::max(static_cast<int>(center - support + 0.5), 0);
    const int high = std::min(static_cast<int>(center + support + 0.5), size);
    double sum = 0;
    for (int x = low; x < high; ++x) {
      sum += exact[x - low] = curve((x - center + 0.5) * (1 / stretch));
    }
    const int first = std::min(low, size - taps.count);
    taps.first[i] = first;
    int32_t* weights = taps.weights.data() + std::ptrdiff_t{i} * taps.count;
    for (int x = low; x < std::min(high, first + taps.count); ++x) {
      const double weight = exact[x - low] / sum * (1 << kPrecision);
      weights[x - first] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
}

// Returns the input position of each output, accumulating steps as Pillow does.
std::vector<int> nearest_positions(int size, double begin, double extent, int outputs) {
  const double step = extent / outputs;
  std::vector<int> positions(outputs);
  double at = begin + step / 2;
  for (int& position : positions) {
    position = std::min(static_cast<int>(at), size - 1);
    at += step;
  }
  return positions;
}

template <int channels>
void pick_pixels(const uint8_t* from, const std::vector<int>& columns, uint8_t* to) {
  for (const int x : columns) {
    std::memcpy(to, from + std::ptrdiff_t{x} * channels, channels);
    to += channels;
  }
}

void nearest(const ImageView& from, const Box& box, const ImageView& to) {
  const std::vector<int> rows = nearest_positions(from.height, box.top, box.height, to.height);
  const std::vector<int> columns = nearest_positions(from.width, box.left, box.width, to.width);
  const auto pick = to.channels == 1 ? pick_pixels<1> : pick_pixels<3>;
  for (int y = 0; y < to.height; ++y) pick(from.row(rows[y]), columns, to.row(y));
}

}  // namespace

// Weighted sums within a row are weighted sums of rows of the transposed image. So a few rows at a
// time are transposed, resized with sum_rows(), and transposed back.
void Resizer::resize_horizontally(const ImageView& from, const ImageView& to) {
  const int channels = from.channels;
  const int together = kColumn / channels;
  columns_before_.resize(static_cast<size_t>(from.width) * kColumn);
  columns_after_.resize(static_cast<size_t>(to.width) * kColumn);
  for (int y = 0; y < from.height; y += together) {
    const int rows = std::min(together, from.height - y);
    const ImageView before = {columns_before_.data(), from.width, rows, channels, kColumn};
    const ImageView after = {columns_after_.data(), to.width, rows, channels, kColumn};
    transpose(from.part({y, 0, rows, from.width}), from.row_bytes(), before, kColumn);
    sum_rows(before.pixels, kColumn, horizontal_, after.pixels, kColumn, kColumn);
    transpose(after, kColumn, to.part({y, 0, rows, to.width}), to.row_bytes());
  }
}

void Resizer::resize(const ImageView& image, const Box& box, const ImageView& to, Filter filter) {
  // Crop to the pixels that the box touches, so that rounding of coordinates does not depend on the
  // other pixels.
  const int top = static_cast<int>(box.top);
  const int left = static_cast<int>(box.left);
  const int bottom = std::min(static_cast<int>(std::ceil(box.top + box.height)), image.height);
  const int right = std::min(static_cast<int>(std::ceil(box.left + box.width)), image.width);
  const ImageView from = image.part({top, left, bottom - top, right - left});
  const Box part = {box.top - top, box.left - left, box.height, box.width};
  if (filter == Filter::kNearest) return nearest(from, part, to);

  const bool same_width = part.left == 0 && part.width == to.width;
  const bool same_height = part.top == 0 && part.height == to.height;
  if (same_width && same_height) return copy_pixels(from, to);
  if (!same_width) make_taps(from.width, part.left, part.width, to.width, filter, horizontal_);
  if (!same_height) make_taps(from.height, part.top, part.height, to.height, filter, vertical_);
  if (same_height) return resize_horizontally(from, to);
  ImageView rows = from;
  if (!same_width) {
    rows = rows_.reshape({from.height, to.width}, from.channels);
    resize_horizontally(from, rows);
  }
  sum_rows(rows.pixels, rows.stride, vertical_, to.pixels, to.stride, to.row_bytes());
}

}  // namespace trireme::data
