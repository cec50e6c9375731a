// What lies around a image.
#pragma once

#include <cstdint>

#include "data/images/image.h"

namespace trireme::data {

struct Border {
  uint8_t fill = 0;  // of all channels
  // Mirrors the image instead, the edge itself not repeated.
  bool reflect = false;
};

// Copies a region that may reach beyond the image `from`, or lie outside.
void copy_with_border(const ImageView& from, const Region& region, const Border& border,
                      const ImageView& to);

}  // namespace trireme::data
