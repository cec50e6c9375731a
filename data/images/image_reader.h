// What Decoder (codec.h) is made of: a reader for each format, with the same three calls. Decoder
// checks what it is asked, and keeps their order.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "data/images/codec.h"
#include "data/images/image.h"

namespace trireme::data {

class ImageReader {
 public:
  virtual ~ImageReader() = default;
  virtual ImageInfo open(std::span<const uint8_t> bytes) = 0;
  virtual DecodePlan plan(const DecodeRequest& request) = 0;
  virtual void decode(const ImageView& to) = 0;
};

std::unique_ptr<ImageReader> create_jpeg_reader();
std::unique_ptr<ImageReader> create_png_reader();

// Runs calls of a library that leaves a failed one by longjmp to `failed`; whether none failed.
// They keep no object with a destructor, and throw nothing. Nor is this function to become part of
// one that has such objects.
template <class Calls>
[[gnu::noinline]] bool runs(std::jmp_buf& failed, const Calls& calls) {
  static_assert(std::is_trivially_destructible_v<Calls>);
  if (setjmp(failed) != 0) return false;
  calls();
  return true;
}

// Throws ImageError unless a image can be so large.
void check_size(int64_t height, int64_t width);

// Rows of so many pixels as Pillow's convert makes them; the first two may work in place.
void rgb_to_gray(const uint8_t* rgb, uint8_t* gray, std::ptrdiff_t pixels);
// CMYK as Adobe stores it, inverted: 255 is no ink.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, std::ptrdiff_t pixels);

}  // namespace trireme::data
