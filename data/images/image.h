// 8-bit images in memory: rows from top to bottom, pixels from left to right, interleaved channels
// in the order red, green, blue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace trireme::data {

struct ImageSize {
  int height = 0;
  int width = 0;
  bool operator==(const ImageSize&) const = default;
};

// A rectangle of pixels in an image.
struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  bool operator==(const Region&) const = default;
  ImageSize size() const { return {height, width}; }
};

// A non-owning view of the pixels of an image or of a part of it.
struct ImageView {
  uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;           // 1 for gray, 3 for RGB
  std::ptrdiff_t stride = 0;  // bytes from the start of a row to the start of the next

  uint8_t* row(int y) const { return pixels + y * stride; }
  ImageSize size() const { return {height, width}; }
  std::ptrdiff_t row_bytes() const { return std::ptrdiff_t{width} * channels; }
  bool contiguous() const { return stride == row_bytes(); }
  // Returns a view of a region, which must be within the image.
  ImageView part(const Region& region) const {
    return {row(region.top) + std::ptrdiff_t{region.left} * channels, region.height, region.width,
            channels, stride};
  }
};

// Returns a view of contiguous pixels.
inline ImageView view_of(uint8_t* pixels, ImageSize size, int channels) {
  return {pixels, size.height, size.width, channels, std::ptrdiff_t{size.width} * channels};
}

// Copies `from` to `to`. The images must have the same size and number of channels, and must not
// overlap.
inline void copy_pixels(const ImageView& from, const ImageView& to) {
  const size_t bytes = from.row_bytes();
  if (from.contiguous() && to.contiguous()) {
    std::memcpy(to.pixels, from.pixels, bytes * from.height);
    return;
  }
  for (int y = 0; y < from.height; ++y) std::memcpy(to.row(y), from.row(y), bytes);
}

// A buffer for an image, which can be reused for other images.
class Image {
 public:
  // Sets the size, and reallocates memory if necessary. Returns a contiguous view of uninitialized
  // pixels.
  ImageView reshape(ImageSize size, int channels) {
    const size_t bytes = static_cast<size_t>(size.height) * size.width * channels;
    if (bytes > capacity_) {
      pixels_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
      capacity_ = bytes;
    }
    return view_ = view_of(pixels_.get(), size, channels);
  }
  const ImageView& view() const { return view_; }

 private:
  std::unique_ptr<uint8_t[]> pixels_;
  size_t capacity_ = 0;
  ImageView view_;
};

}  // namespace trireme::data
