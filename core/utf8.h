// UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// Returns the length in bytes of a UTF-8 character with this first byte, or 0 if it is invalid.
constexpr size_t utf8_length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;  // a continuation byte or an overlong encoding
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

struct Utf8Character {
  int32_t code = 0;  // code point
  size_t bytes = 0;  // length; 0 if the bytes are not UTF-8
};

// Returns the character of UTF-8 text that begins at byte `at`, which must be less than
// text.size(). Overlong encodings and surrogates are not UTF-8.
inline Utf8Character utf8_character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const size_t length = utf8_length(byte(0));
  if (length == 1) return {byte(0), 1};
  if (length == 0 || length > text.size() - at) return {};
  int32_t code = byte(0) & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return overlong || surrogate || code >= 0x110000 ? Utf8Character{} : Utf8Character{code, length};
}

// Appends a code point of Unicode as UTF-8.
inline void append_utf8(std::string& text, int32_t character) {
  const auto c = static_cast<uint32_t>(character);
  const auto rest = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += {static_cast<char>(0xc0 | c >> 6), rest(0)};
  } else if (c < 0x10000) {
    text += {static_cast<char>(0xe0 | c >> 12), rest(6), rest(0)};
  } else {
    text += {static_cast<char>(0xf0 | c >> 18), rest(12), rest(6), rest(0)};
  }
}

// Returns a code point of Unicode as UTF-8.
inline std::string to_utf8(int32_t character) {
  std::string text;
  append_utf8(text, character);
  return text;
}

}  // namespace trireme
