// The first bytes choose what is wanted of it, the rest is a image's file: whatever can be
// decoded has the same pixels in every region.
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

// A byte as a place in [0, count).
int place(uint8_t byte, int count) { return byte * count / 256; }

trireme::data::DecodeRequest request(const uint8_t* choices, trireme::data::ImageSize size) {
  trireme::data::DecodeRequest wanted;
  wanted.channels = choices[0] % 2 == 0 ? 3 : 1;
  wanted.shrink = 1 << (choices[0] / 2 % 4);
  trireme::data::Region& region = wanted.region;
  region.top = place(choices[1], size.height);
  region.left = place(choices[2], size.width);
  region.height = 1 + place(choices[3], size.height - region.top);
  region.width = 1 + place(choices[4], size.width - region.left);
  return wanted;
}

void decode(trireme::data::Decoder& decoder, const trireme::data::DecodePlan& plan, int channels,
            trireme::data::Image& to) {
  decoder.decode(to.reshape(plan.size, channels));
}

bool same(const uint8_t* a, const uint8_t* b, int pixels, int channels) {
  return std::memcmp(a, b, static_cast<size_t>(pixels) * static_cast<size_t>(channels)) == 0;
}

// `part` lies in `whole` where its plan says.
void compare(const trireme::data::Image& whole, const trireme::data::Image& part,
             const trireme::data::DecodePlan& plan, const trireme::data::DecodeRequest& wanted,
             trireme::data::ImageSize size) {
  const int shrink = plan.covers.height / plan.size.height;
  const trireme::data::Region& region = wanted.region;
  trireme::fuzz::require(plan.covers.size() == trireme::data::ImageSize{plan.size.height * shrink,
                                                                        plan.size.width * shrink} &&
                             whole.view().height == (size.height + shrink - 1) / shrink,
                         "sizes are what the shrinking makes of them");
  trireme::fuzz::require(plan.covers.top <= region.top && plan.covers.left <= region.left &&
                             plan.covers.top + plan.covers.height >= region.top + region.height &&
                             plan.covers.left + plan.covers.width >= region.left + region.width,
                         "what is given holds what was wanted");
  const int left = region.left / shrink;
  const int right = (region.left + region.width + shrink - 1) / shrink;
  const int bottom = (region.top + region.height + shrink - 1) / shrink;
  for (int y = region.top / shrink; y < bottom; ++y) {
    const uint8_t* expected = whole.view().row(y) + left * wanted.channels;
    const uint8_t* row = part.view().row(y - plan.covers.top / shrink) +
                         (left - plan.covers.left / shrink) * wanted.channels;
    trireme::fuzz::require(same(row, expected, right - left, wanted.channels),
                           "a region is that of the whole");
  }
}

uint32_t read_number(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Makes the checksums of a PNG's chunks right.
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

// Damage is to get past the checksums, mostly.
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
  static trireme::data::Decoder decoder;
  static trireme::data::Image whole, part;
  trireme::fuzz::refuse_with<trireme::data::ImageError>([&] {
    const trireme::data::ImageSize image = decoder.open(file).size;
    trireme::fuzz::require(int64_t{image.height} * image.width <= trireme::data::kMaxPixels,
                           "images are small");
    if (int64_t{image.height} * image.width > 1 << 20) return;  // so that it takes no time
    const trireme::data::DecodeRequest wanted = request(data, image);
    const trireme::data::DecodePlan plan = decoder.plan(wanted);
    decode(decoder, plan, wanted.channels, part);
    decoder.open(file);
    const trireme::data::Region everything{0, 0, image.height, image.width};
    decode(decoder, decoder.plan({wanted.channels, everything, wanted.shrink}), wanted.channels,
           whole);
    compare(whole, part, plan, wanted, image);
  });
  return 0;
}
