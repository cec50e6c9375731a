// The first bytes select the region, channels and shrink factor; the rest is an image file.
// Decoding a region gives the same pixels as decoding the full image.
#include <zlib.h>

#include <cstring>
#include <span>

#include "data/images/codec.h"
#include "tests/fuzz/fuzz.h"

using trireme::data::DecodePlan;
using trireme::data::Decoder;
using trireme::data::DecodeRequest;
using trireme::data::Image;
using trireme::data::ImageError;
using trireme::data::ImageSize;
using trireme::data::Region;
using trireme::fuzz::require;

namespace {

constexpr size_t kChoices = 5;

// Maps a byte to [0, count).
int place(uint8_t byte, int count) { return byte * count / 256; }

DecodeRequest request(const uint8_t* choices, ImageSize size) {
  DecodeRequest wanted;
  wanted.channels = choices[0] % 2 == 0 ? 3 : 1;
  wanted.shrink = 1 << (choices[0] / 2 % 4);
  Region& region = wanted.region;
  region.top = place(choices[1], size.height);
  region.left = place(choices[2], size.width);
  region.height = 1 + place(choices[3], size.height - region.top);
  region.width = 1 + place(choices[4], size.width - region.left);
  return wanted;
}

void decode(Decoder& decoder, const DecodePlan& plan, int channels, Image& to) {
  decoder.decode(to.reshape(plan.size, channels));
}

bool same(const uint8_t* a, const uint8_t* b, int pixels, int channels) {
  return std::memcmp(a, b, static_cast<size_t>(pixels) * static_cast<size_t>(channels)) == 0;
}

// Compares the region `part`, decoded by `plan`, with the full image, which covers the region
// `all`: the image and, if it is turned and reduced, a few pixels above it and on its left.
void compare(const Image& full, const Region& all, const Image& part, const DecodePlan& plan,
             const DecodeRequest& wanted, ImageSize size) {
  const int shrink = plan.covers.height / plan.size.height;
  const Region& region = wanted.region;
  require(plan.covers.size() == ImageSize{plan.size.height * shrink, plan.size.width * shrink} &&
              full.view().height == (size.height + shrink - 1) / shrink,
          "sizes follow from the shrink factor");
  require(plan.covers.top <= region.top && plan.covers.left <= region.left &&
              plan.covers.top + plan.covers.height >= region.top + region.height &&
              plan.covers.left + plan.covers.width >= region.left + region.width,
          "the decoded region covers the requested one");
  const int from_top = region.top - all.top, from_left = region.left - all.left;
  const int left = from_left / shrink;
  const int right = (from_left + region.width + shrink - 1) / shrink;
  const int bottom = (from_top + region.height + shrink - 1) / shrink;
  for (int y = from_top / shrink; y < bottom; ++y) {
    const uint8_t* expected = full.view().row(y) + left * wanted.channels;
    const uint8_t* row = part.view().row(y - (plan.covers.top - all.top) / shrink) +
                         (left - (plan.covers.left - all.left) / shrink) * wanted.channels;
    require(same(row, expected, right - left, wanted.channels),
            "a region has the pixels of the full image");
  }
}

uint32_t read_number(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Fixes the checksums of the chunks of a PNG.
void sign_chunks(std::span<uint8_t> png) {
  constexpr size_t kSignature = 8, kLengthAndType = 8, kChecksum = 4;
  for (size_t at = kSignature; at + kLengthAndType + kChecksum <= png.size();) {
    const size_t length = read_number(png.data() + at);
    if (length > png.size() - at - kLengthAndType - kChecksum) return;
    uint8_t* const end = png.data() + at + kLengthAndType + length;
    const auto sum = crc32(0, png.data() + at + 4, static_cast<uInt>(4 + length));
    for (int i = 0; i < 4; ++i) end[i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += kLengthAndType + length + kChecksum;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Fixes the checksums of PNG chunks in most mutations, so that the parser accepts damaged chunks.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  const bool png = size > kChoices + 1 && data[kChoices] == 0x89;
  if (png && seed % 8 != 0) sign_chunks({data + kChoices, size - kChoices});
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kChoices) return 0;
  const std::span file(data + kChoices, size - kChoices);
  static Decoder decoder;
  static Image full, part;
  trireme::fuzz::accept_or_throw<ImageError>([&] {
    const ImageSize image = decoder.open(file).size;
    require(int64_t{image.height} * image.width <= trireme::data::kMaxPixels,
            "images have at most kMaxPixels");
    if (int64_t{image.height} * image.width > 1 << 20) return;  // too slow
    const DecodeRequest wanted = request(data, image);
    const DecodePlan plan = decoder.plan(wanted);
    decode(decoder, plan, wanted.channels, part);
    decoder.open(file);
    const Region all{0, 0, image.height, image.width};
    const DecodePlan whole = decoder.plan({wanted.channels, all, wanted.shrink});
    decode(decoder, whole, wanted.channels, full);
    compare(full, whole.covers, part, plan, wanted, image);
  });
  return 0;
}
