// Affine transforms of images: shear, translation and rotation.
#pragma once

#include <array>
#include <cstdint>

#include "data/images/image.h"

namespace trireme::data {

// Maps (x, y) of the output to (m[0] x + m[1] y + m[2], m[3] x + m[4] y + m[5]) of the input, in
// coordinates where pixel (y, x) covers [y, y + 1) x [x, x + 1).
using AffineMap = std::array<double, 6>;

// Shears by `x` pixels per row horizontally and `y` pixels per column vertically, with the upper
// left corner fixed.
AffineMap shear_map(double x, double y);
// Moves the image to the right and downwards.
AffineMap translation_map(double x, double y);
// Rotates counterclockwise around the center.
AffineMap rotation_map(double degrees, ImageSize size);

// Transforms `from` into `to` with nearest-neighbor sampling. Pixels outside of `from` become
// `fill`. The images must have the same number of channels, 1 or 3, and must not overlap. Results
// are bit-identical to Pillow's Image.transform(size, AFFINE, map, NEAREST) for images that Pillow
// transforms in fixed-point arithmetic (up to a few thousand pixels per side).
void warp(const ImageView& from, const AffineMap& map, uint8_t fill, const ImageView& to);

}  // namespace trireme::data
