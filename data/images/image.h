// Images of bytes in memory: rows from the top, pixels from the left, channels together (red
// first).
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

struct Region {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  bool operator==(const Region&) const = default;
  ImageSize size() const { return {height, width}; }
};

// Pixels that belong to somebody else.
struct ImageView {
  uint8_t* pixels = nullptr;
  int height = 0;
  int width = 0;
  int channels = 0;           // 1: gray, 3: red, green, blue
  std::ptrdiff_t stride = 0;  // bytes from row to row

  uint8_t* row(int y) const { return pixels + y * stride; }
  ImageSize size() const { return {height, width}; }
  std::ptrdiff_t row_bytes() const { return std::ptrdiff_t{width} * channels; }
  bool contiguous() const { return stride == row_bytes(); }
  // A part, which must lie within.
  ImageView part(const Region& region) const {
    return {row(region.top) + std::ptrdiff_t{region.left} * channels, region.height, region.width,
            channels, stride};
  }
};

// View of memory without gaps.
inline ImageView view_of(uint8_t* pixels, ImageSize size, int channels) {
  return {pixels, size.height, size.width, channels, std::ptrdiff_t{size.width} * channels};
}

// Between images of the same size and channels that do not overlap.
inline void copy_pixels(const ImageView& from, const ImageView& to) {
  const size_t bytes = from.row_bytes();
  if (from.contiguous() && to.contiguous()) {
    std::memcpy(to.pixels, from.pixels, bytes * from.height);
    return;
  }
  for (int y = 0; y < from.height; ++y) std::memcpy(to.row(y), from.row(y), bytes);
}

// Memory for a image, kept from one to the next.
class Image {
 public:
  // Without gaps; what was there is lost.
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
