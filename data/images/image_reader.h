// The implementation of Decoder (codec.h): an ImageReader for each format. Decoder checks the
// arguments and the order of the calls.
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

// Decodes images of one format. The functions behave as those of Decoder.
class ImageReader {
 public:
  virtual ~ImageReader() = default;
  virtual ImageInfo open(std::span<const uint8_t> bytes) = 0;
  virtual DecodePlan plan(const DecodeRequest& request) = 0;
  virtual void decode(const ImageView& to) = 0;
};

std::unique_ptr<ImageReader> create_jpeg_reader();
std::unique_ptr<ImageReader> create_png_reader();

// Runs `calls`, which call a C library that reports errors by longjmp to `failed`. Returns false if
// such an error occurred. `calls` must not have objects with destructors and must not throw. This
// function must not be inlined into a caller that has such objects.
template <class Calls>
[[gnu::noinline]] bool try_calls(std::jmp_buf& failed, const Calls& calls) {
  static_assert(std::is_trivially_destructible_v<Calls>);
  if (setjmp(failed) != 0) return false;
  calls();
  return true;
}

// Throws ImageError if the image is empty or has more than `max_pixels`.
void check_size(int64_t height, int64_t width, int64_t max_pixels = kMaxPixels);

// Convert a row as Pillow's convert() does. Input and output may be the same memory.
void rgb_to_gray(const uint8_t* rgb, uint8_t* gray, std::ptrdiff_t pixels);
// CMYK values are inverted, as Adobe stores them: 255 is no ink.
void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, std::ptrdiff_t pixels);

}  // namespace trireme::data
