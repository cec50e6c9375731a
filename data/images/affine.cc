#include "data/images/affine.h"

#include <cmath>
#include <cstring>
#include <numbers>

namespace trireme::data {
namespace {

// Converts to fixed point with 16 fractional bits, as Pillow does.
int64_t fixed(double x) { return static_cast<int64_t>(std::floor(x * 65536 + 0.5)); }

template <int channels>
void warp_pixels(const ImageView& from, const AffineMap& m, const ImageView& to) {
  const int64_t step_x = fixed(m[0]);
  const int64_t step_y = fixed(m[3]);
  int64_t row_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  int64_t row_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  for (int y = 0; y < to.height; ++y) {
    int64_t at_x = row_x;
    int64_t at_y = row_y;
    uint8_t* target = to.row(y);
    for (int x = 0; x < to.width; ++x) {
      const int64_t source_x = at_x >> 16;
      const int64_t source_y = at_y >> 16;
      if (source_x >= 0 && source_x < from.width && source_y >= 0 && source_y < from.height) {
        std::memcpy(target, from.row(static_cast<int>(source_y)) + source_x * channels, channels);
      }
      target += channels;
      at_x += step_x;
      at_y += step_y;
    }
    row_x += fixed(m[1]);
    row_y += fixed(m[4]);
  }
}

}  // namespace

AffineMap shear_map(double x, double y) { return {1, x, 0, y, 1, 0}; }

AffineMap translation_map(double x, double y) { return {1, 0, -x, 0, 1, -y}; }

AffineMap rotation_map(double degrees, ImageSize size) {
  const double angle = degrees * (std::numbers::pi / 180);
  const double c = std::cos(angle);
  const double s = std::sin(angle);
  const double x = size.width / 2.0;
  const double y = size.height / 2.0;
  return {c, -s, x - c * x + s * y, s, c, y - s * x - c * y};
}

void warp(const ImageView& from, const AffineMap& map, uint8_t fill, const ImageView& to) {
  for (int y = 0; y < to.height; ++y) {
    std::memset(to.row(y), fill, to.row_bytes());
  }
  if (from.channels == 1) {
    warp_pixels<1>(from, map, to);
  } else {
    warp_pixels<3>(from, map, to);
  }
}

}  // namespace trireme::data
