// Image files with EXIF blocks.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::testing {

// Returns the `count` bytes of a number.
inline std::string number_bytes(uint64_t value, int count, bool big_endian = true) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(value >> (8 * (big_endian ? count - 1 - i : i)));
  }
  return bytes;
}

// An entry of a directory of EXIF.
struct ExifEntry {
  uint64_t tag = 0x0112;  // the orientation
  uint64_t type = 3;      // SHORT
  uint64_t count = 1;
  std::string value;  // 4 bytes
};

// Returns an EXIF block with one directory.
inline std::string exif_block(const std::vector<ExifEntry>& entries, bool big_endian = true) {
  const auto bytes = [&](uint64_t value, int count) {
    return number_bytes(value, count, big_endian);
  };
  std::string block = (big_endian ? "MM" : "II") + bytes(42, 2) + bytes(8, 4);
  block += bytes(entries.size(), 2);
  for (const ExifEntry& entry : entries) {
    block += bytes(entry.tag, 2) + bytes(entry.type, 2) + bytes(entry.count, 4) + entry.value;
  }
  return block + bytes(0, 4);
}

inline std::string exif_block(int orientation, bool big_endian = true) {
  std::string value = number_bytes(static_cast<uint64_t>(orientation), 2, big_endian);
  value.resize(4);
  return exif_block({{.value = value}}, big_endian);
}

// Returns a JPEG or PNG file with an EXIF block added.
inline std::vector<uint8_t> with_exif(const std::vector<uint8_t>& file, const std::string& block) {
  const bool png = file[0] == 0x89;
  std::string added;
  if (png) {
    const std::string body = "eXIf" + block;
    const auto sum =
        crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
    added = number_bytes(block.size(), 4) + body + number_bytes(sum, 4);
  } else {
    const std::string body = std::string("Exif\0\0", 6) + block;
    added = "\xFF\xE1" + number_bytes(body.size() + 2, 2) + body;
  }
  std::vector<uint8_t> bytes = file;
  const std::ptrdiff_t at = png ? 33 : 2;  // after IHDR or SOI
  bytes.insert(bytes.begin() + at, added.begin(), added.end());
  return bytes;
}
inline std::vector<uint8_t> with_orientation(const std::vector<uint8_t>& file, int orientation) {
  return with_exif(file, exif_block(orientation));
}

}  // namespace trireme::testing
