// Images in files: JPEG (libjpeg-turbo) and PNG (libpng).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/images/image.h"

namespace trireme::data {

// What is wrong with a image, without its name: who knows that makes it a DataError.
class ImageError : public Error {
 public:
  explicit ImageError(const std::string& what) : Error(what, ExitCode::kBadData) {}
};

// No image may have more.
constexpr int64_t kMaxPixels = int64_t{1} << 28;

struct ImageInfo {
  ImageSize size;      // as stored: an orientation in EXIF is not followed
  std::string format;  // for people: "JPEG", "progressive CMYK JPEG", "16-bit gray PNG"
};

struct DecodeRequest {
  // Of the result. What is stored otherwise is converted as by Pillow's convert, alpha dropped;
  // gray of JPEG is its luma as stored, 16 bits are rounded to 8.
  int channels = 3;
  Region region;   // the part of the image that is wanted
  int shrink = 1;  // at 1/1, 1/2, 1/4 or 1/8 of its size; other formats than JPEG take it for 1
};

// What a decoder will give: pixels of `covers`, which holds the region that was asked for and a
// little around it where the format cannot be cut closer, in a image of `size`.
struct DecodePlan {
  // In pixels of the whole image. Shrunk, each pixel of `size` is a square of them, so that
  // `covers` may reach beyond the image's right and bottom by less than one such square.
  Region covers;
  ImageSize size;
};

// Decodes one image after the other. Keeps what memory it needs. For one thread at a time.
//
// Pixels within the region are those that decoding the whole gives, to the bit. Only what has to be
// read is read: damage below the region is not found, damage above or in it is an error, and so is
// an end of the data before the region's.
class Decoder {
 public:
  Decoder();
  ~Decoder();

  // Begins with a image, whose bytes must stay until it is decoded, and reads its header. Throws
  // ImageError, as the others do; after that, or at any time, comes the next open.
  const ImageInfo& open(std::span<const uint8_t> bytes);
  // Once after open.
  DecodePlan plan(const DecodeRequest& request);
  // Once after plan, into memory of that size and so many channels, of any stride.
  void decode(const ImageView& to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Files of a image of 1 or 3 channels. JPEG has its colors at half the resolution (4:2:0), as
// usual; quality is from 1 to 100.
std::vector<uint8_t> encode_png(const ImageView& image);
std::vector<uint8_t> encode_jpeg(const ImageView& image, int quality);

}  // namespace trireme::data
