// Images sheared, moved and turned.
#pragma once

#include <array>
#include <cstdint>

#include "data/images/image.h"

namespace trireme::data {

// Where the pixel at (x, y) of the result comes from: (m[0] x + m[1] y + m[2], m[3] x + m[4] y +
// m[5]), in coordinates where pixel (y, x) covers [y, y + 1) x [x, x + 1).
using AffineMap = std::array<double, 6>;

// Horizontally by `x` pixels a row, about the upper left corner; vertically likewise.
AffineMap shear_map(double x, double y);
// To the right and downwards.
AffineMap translation_map(double x, double y);
// Counterclockwise about the center.
AffineMap rotation_map(double degrees, ImageSize size);

// Makes `to` of the nearest pixels of `from`, and of `fill` where there are none. Both have the
// same channels, 1 or 3, and do not overlap. Results are those of Pillow's Image.transform(size,
// AFFINE, map, NEAREST), to the bit, for images that it computes in fixed point (of a few
// thousand pixels a side).
void warp(const ImageView& from, const AffineMap& map, uint8_t fill, const ImageView& to);

}  // namespace trireme::data
