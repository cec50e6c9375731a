#include "data/images/orientation.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

using ExifBytes = std::span<const uint8_t>;

bool has_magic(ExifBytes bytes, std::string_view text) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(text);
}

// Returns the number in the first `count` of the bytes, of which there must be as many.
uint32_t exif_number(ExifBytes bytes, size_t count, bool big_endian = true) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value = value << 8 | bytes[big_endian ? i : count - 1 - i];
  return value;
}

// Returns the EXIF block of a JPEG file: its first segment APP1 that begins with "Exif". Empty if
// there is none before the pixels.
ExifBytes exif_of_jpeg(ExifBytes file) {
  constexpr uint8_t kApp1 = 0xE1, kStartOfScan = 0xDA, kEndOfImage = 0xD9;
  size_t at = 2;
  while (true) {
    while (at < file.size() && file[at] != 0xFF) ++at;
    while (at < file.size() && file[at] == 0xFF) ++at;
    if (at == file.size()) return {};
    const uint8_t marker = file[at++];
    if (marker == kStartOfScan || marker == kEndOfImage) return {};
    const bool is_alone = marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8);
    if (is_alone) continue;
    if (file.size() - at < 2) return {};
    const size_t length = exif_number(file.subspan(at), 2);  // with the two bytes of the number
    if (length < 2 || length > file.size() - at) return {};
    const ExifBytes segment = file.subspan(at + 2, length - 2);
    if (marker == kApp1 && has_magic(segment, "Exif\0\0"sv)) return segment;
    at += length;
  }
}

// Returns the EXIF block of a PNG file: its chunk eXIf. Empty if there is none.
ExifBytes exif_of_png(ExifBytes file) {
  constexpr size_t kSignature = 8, kLengthAndType = 8, kChecksum = 4;
  for (size_t at = kSignature; at + kLengthAndType + kChecksum <= file.size();) {
    const size_t length = exif_number(file.subspan(at), 4);
    if (length > file.size() - at - kLengthAndType - kChecksum) return {};
    const bool found = has_magic(file.subspan(at + 4), "eXIf");
    if (found) return file.subspan(at + kLengthAndType, length);
    at += kLengthAndType + length + kChecksum;
  }
  return {};
}

// Returns the orientation in an EXIF block, which is a TIFF file: a header and then directories of
// entries of 12 bytes. 0 if there is none.
uint32_t orientation_in(ExifBytes exif) {
  constexpr uint32_t kOrientation = 0x0112, kByte = 1, kShort = 3, kLong = 4;
  constexpr size_t kHeader = 8, kEntry = 12;
  while (has_magic(exif, "Exif\0\0"sv)) exif = exif.subspan(6);
  const bool big = has_magic(exif, "MM\0*"sv);
  if ((!big && !has_magic(exif, "II*\0"sv)) || exif.size() < kHeader) return 0;
  const size_t directory = exif_number(exif.subspan(4), 4, big);
  if (directory > exif.size() - 2) return 0;
  const size_t count = exif_number(exif.subspan(directory), 2, big);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = directory + 2 + i * kEntry;
    if (at + kEntry > exif.size()) return 0;
    const ExifBytes entry = exif.subspan(at, kEntry);
    if (exif_number(entry, 2, big) != kOrientation) continue;
    const uint32_t type = exif_number(entry.subspan(2), 2, big);
    const size_t bytes = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    const bool is_single = exif_number(entry.subspan(4), 4, big) == 1;
    return is_single ? exif_number(entry.subspan(8), bytes, big) : 0;
  }
  return 0;
}

struct PixelSteps {
  std::ptrdiff_t row, column;  // bytes between stored pixels of adjacent upright rows and columns
};

// Copies blocks of columns, so that both images are read and written a few rows at a time.
template <int kChannels>
void copy_steps(const uint8_t* from, PixelSteps steps, const ImageView& to) {
  constexpr int kBlock = 16;
  for (int top = 0; top < to.height; top += kBlock) {
    const int bottom = std::min(top + kBlock, to.height);
    for (int x = 0; x < to.width; ++x) {
      for (int y = top; y < bottom; ++y) {
        const uint8_t* pixel = from + y * steps.row + x * steps.column;
        std::copy_n(pixel, kChannels, to.row(y) + std::ptrdiff_t{x} * kChannels);
      }
    }
  }
}

}  // namespace

Orientation::Orientation(int exif)
    : transposed_(exif >= 5),
      flips_rows_(exif == 3 || exif == 4 || exif == 6 || exif == 7),
      flips_columns_(exif == 2 || exif == 3 || exif == 7 || exif == 8) {}

ImageSize Orientation::upright(ImageSize stored) const {
  return transposed_ ? ImageSize{stored.width, stored.height} : stored;
}

Region Orientation::flipped(Region region, ImageSize stored) const {
  if (flips_rows_) region.top = stored.height - region.top - region.height;
  if (flips_columns_) region.left = stored.width - region.left - region.width;
  return region;
}

Region Orientation::to_stored(const Region& upright, ImageSize size) const {
  const Region& r = upright;
  return flipped(transposed_ ? Region{r.left, r.top, r.width, r.height} : r, size);
}

Region Orientation::to_upright(const Region& stored, ImageSize size) const {
  const Region r = flipped(stored, size);
  return transposed_ ? Region{r.left, r.top, r.width, r.height} : r;
}

void Orientation::copy(const ImageView& stored, const ImageView& upright) const {
  const std::ptrdiff_t pixel = stored.channels;
  const std::ptrdiff_t along_rows = flips_rows_ ? -stored.stride : stored.stride;
  const std::ptrdiff_t along_columns = flips_columns_ ? -pixel : pixel;
  PixelSteps steps{along_rows, along_columns};
  if (transposed_) std::swap(steps.row, steps.column);
  const uint8_t* first = stored.row(flips_rows_ ? stored.height - 1 : 0) +
                         (flips_columns_ ? stored.width - 1 : 0) * pixel;
  if (stored.channels == 1) {
    copy_steps<1>(first, steps, upright);
  } else {
    copy_steps<3>(first, steps, upright);
  }
}

Orientation orientation_of(std::span<const uint8_t> file) {
  const bool png = has_magic(file, "\x89PNG"sv);
  const uint32_t exif = orientation_in(png ? exif_of_png(file) : exif_of_jpeg(file));
  return exif >= 1 && exif <= 8 ? Orientation(static_cast<int>(exif)) : Orientation();
}

}  // namespace trireme::data
