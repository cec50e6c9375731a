// Many pictures on one, each with a caption.
#pragma once

#include <span>
#include <string>

#include "data/images/image.h"

namespace trireme {

struct SheetPicture {
  ImageView image;      // of 1 or 3 channels
  std::string caption;  // of one line or more
};

struct SheetStyle {
  int columns = 8;  // at most
  // Pixels are enlarged to so many; 0: small pictures as suits them all, and large ones shrunk.
  int zoom = 0;
};

// In rows, in their order, on a light ground; of 3 channels. There must be at least one.
Image contact_sheet(std::span<const SheetPicture> pictures, const SheetStyle& style = {});

}  // namespace trireme
