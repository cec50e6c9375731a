// Padding for the area around an image.
#pragma once

#include <cstdint>

#include "data/images/image.h"

namespace trireme::data {

struct Border {
  uint8_t fill = 0;  // value of all channels
  // Mirrors the image instead of filling, without repeating the edge pixels.
  bool reflect = false;
};

// Copies a region of `from` to `to`, padding where the region extends beyond the image. The region
// may lie entirely outside the image.
void copy_with_border(const ImageView& from, const Region& region, const Border& border,
                      const ImageView& to);

}  // namespace trireme::data
