// UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

// Returns the length in bytes of a UTF-8 character with this first byte, or 0 if it is invalid.
constexpr size_t utf8_length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;  // a continuation byte or an overlong encoding
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

// Returns a code point of Unicode as UTF-8.
inline std::string to_utf8(int32_t character) {
  const auto c = static_cast<uint32_t>(character);
  const auto rest = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | c >> 6), rest(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | c >> 12), rest(6), rest(0)};
  return {static_cast<char>(0xf0 | c >> 18), rest(12), rest(6), rest(0)};
}

}  // namespace trireme
