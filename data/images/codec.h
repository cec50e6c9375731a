// Decodes and encodes image files: JPEG (libjpeg-turbo) and PNG (libpng).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/images/image.h"

namespace trireme::data {

// An image that cannot be decoded. The message does not contain the image's name; callers that know
// it convert the exception to a DataError.
class ImageError : public Error {
 public:
  explicit ImageError(const std::string& what) : Error(what, ExitCode::kBadData) {}
};

// The highest limit of the pixels of an image.
constexpr int64_t kMaxPixels = int64_t{1} << 28;

struct ImageInfo {
  ImageSize size;      // of the result, see Decoder
  std::string format;  // for messages: "JPEG", "progressive CMYK JPEG", "16-bit gray PNG"
};

// A region and a size refer to the image after its EXIF orientation has been applied, see Decoder.
struct DecodeRequest {
  // Channels of the result, 1 or 3. Colors are converted as by Pillow's convert(), and alpha is
  // dropped. The gray of a color JPEG is its stored luma. 16-bit values are rounded to 8 bits.
  int channels = 3;
  Region region;   // the part of the image to decode
  int shrink = 1;  // decodes at 1/1, 1/2, 1/4 or 1/8 of the size; ignored for PNG
};

// The part of the image that a decoder will return. It contains the requested region and, if the
// format does not allow cropping at its exact borders, some pixels around it.
struct DecodePlan {
  // The decoded region in pixels of the original image. With shrink > 1, it may extend beyond two
  // borders of the image, the right and bottom one if it is stored upright, by less than `shrink`
  // pixels.
  Region covers;
  ImageSize size;  // the size of the result
};

// Decodes images one after another, reusing its memory. Not thread-safe.
//
// Images are mirrored and turned as their EXIF orientation says, as by Pillow's exif_transpose,
// unless the decoder is told to ignore it.
//
// Pixels within the region are bit-identical to those of decoding the entire image. A decoder reads
// only as much data as it needs: damage or truncation above or within the region, as stored, is an
// error, but damage below it is not detected.
class Decoder {
 public:
  // Images with more than `max_pixels` are rejected with ImageError.
  explicit Decoder(int64_t max_pixels = kMaxPixels, bool apply_exif_orientation = true);
  ~Decoder();

  // The three functions must be called in this order for each image, and throw ImageError if it
  // cannot be decoded. open() may be called at any time to continue with another image.
  //
  // Reads the header of an image. `bytes` must stay valid until it is decoded.
  const ImageInfo& open(std::span<const uint8_t> bytes);
  // Returns the region that decode() will return.
  DecodePlan plan(const DecodeRequest& request);
  // Decodes into `to`, which must have the planned size and requested channels, and any stride.
  void decode(const ImageView& to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Encode an image with 1 or 3 channels and return the contents of the file. JPEG uses 4:2:0 chroma
// subsampling and a quality of 1 to 100. Throw ImageError if the image cannot be encoded.
std::vector<uint8_t> encode_png(const ImageView& image);
std::vector<uint8_t> encode_jpeg(const ImageView& image, int quality);

}  // namespace trireme::data
