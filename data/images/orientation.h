// The EXIF orientation of photographs: how stored pixels must be mirrored and turned to be upright.
#pragma once

#include <cstdint>
#include <span>

#include "data/images/image.h"

namespace trireme::data {

class Orientation {
 public:
  // The image is stored upright.
  Orientation() = default;
  // `exif` is the value of EXIF's tag, in [1, 8].
  explicit Orientation(int exif);

  bool is_upright() const { return !transposed_ && !flips_rows_ && !flips_columns_; }
  // Returns the size of the upright image.
  ImageSize upright(ImageSize stored) const;
  // Convert regions of an image whose stored size is `size`. They may extend beyond its borders.
  Region to_stored(const Region& upright, ImageSize size) const;
  Region to_upright(const Region& stored, ImageSize size) const;
  // Copies the pixels of a stored image to an upright one. The images must not overlap, and have
  // the sizes that upright() converts into each other.
  void copy(const ImageView& stored, const ImageView& upright) const;

 private:
  Region flipped(Region region, ImageSize stored) const;

  // The upright pixel (y, x) is the stored pixel (y, x) or, if transposed, (x, y), counted from the
  // last row or column if they are flipped.
  bool transposed_ = false;
  bool flips_rows_ = false;
  bool flips_columns_ = false;
};

// Returns the orientation that the EXIF block of a JPEG or PNG file states. An image without one,
// or with one that is damaged or states no number in [1, 8], is upright. The
// orientation in XMP, which some programs write, is ignored.
Orientation orientation_of(std::span<const uint8_t> file);

}  // namespace trireme::data
