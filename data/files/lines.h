// The lines of a text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace trireme::data {

// Returns the text behind the mark with which some programs begin UTF-8.
inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

// Calls line(text, number) for each line, from 1, without its end ("\n" or "\r\n").
template <class Line>
void for_each_line(std::string_view text, Line line) {
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view found = text.substr(0, end);
    if (found.ends_with('\r')) found.remove_suffix(1);
    line(found, number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace trireme::data
