// Converts text to tokens and back, by the names of the tokens: each is a character or a byte.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::data {

class TokenText {
 public:
  // Returns whether this is the name of a character or a byte: "a", "\n", "U+0007", "0xff".
  static bool is_name(const std::string& name);
  // `names` are those of Dataset::class_names().
  explicit TokenText(const std::vector<std::string>& names);

  // Throws Error that names the first character that is not in the vocabulary.
  std::vector<int32_t> encode(const std::string& text) const;
  // Returns the bytes of a token in [0, number of names).
  const std::string& text_of(int32_t token) const { return texts_.at(static_cast<size_t>(token)); }

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, int32_t> tokens_;
};

}  // namespace trireme::data
