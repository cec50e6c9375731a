#include "data/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"

namespace trireme::data {
namespace {

int32_t from_hex(std::string_view digits) {
  int32_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

// Returns what a name stands for. Names of one character stand for themselves, so the longer ones
// are unambiguous.
std::string text_of_name(const std::string& name) {
  if (name == "\\n") return "\n";
  if (name == "\\r") return "\r";
  if (name == "\\t") return "\t";
  if (name.size() > 2 && name.starts_with("U+")) return to_utf8(from_hex(name.substr(2)));
  if (name.size() == 4 && name.starts_with("0x")) {
    return {static_cast<char>(from_hex(name.substr(2)))};
  }
  return name;
}

}  // namespace

bool TokenText::is_name(const std::string& name) {
  const std::string text = text_of_name(name);
  return text.size() == 1 ||
         (!text.empty() && utf8_length(static_cast<uint8_t>(text[0])) == text.size());
}

TokenText::TokenText(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    tokens_.emplace(text_of_name(name), static_cast<int32_t>(texts_.size()));
    texts_.push_back(text_of_name(name));
  }
}

std::vector<int32_t> TokenText::encode(const std::string& text) const {
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, utf8_length(static_cast<uint8_t>(text[at])));
    const std::string character = text.substr(at, length);
    auto found = tokens_.find(character);
    if (found == tokens_.end()) found = tokens_.find(text.substr(at, 1));
    if (found == tokens_.end()) {
      throw Error(fmt::format("'{}' (byte {}) is not in the vocabulary of the training text",
                              printable(character), at));
    }
    tokens.push_back(found->second);
    at += found->first.size();
  }
  return tokens;
}

}  // namespace trireme::data
