// The tokens of the words of one text that have been encoded before: most words of a text occur
// many times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

class WordCache {
 public:
  // Appends the tokens of a word to `tokens`, the tokens of the text so far. Words that have not
  // occurred before are encoded by encode(word, tokens), which appends their tokens. `word` must
  // remain valid as long as this object, and all calls must pass the same `tokens`.
  template <class Encode>
  void append(std::string_view word, std::vector<int32_t>& tokens, Encode encode) {
    const auto found = places_.find(word);
    if (found == places_.end()) {
      const size_t begin = tokens.size();
      encode(word, tokens);
      if (places_.size() < kMaxWords) places_.emplace(word, Place{begin, tokens.size() - begin});
      return;
    }
    const auto [begin, count] = found->second;
    tokens.resize(tokens.size() + count);
    std::copy_n(tokens.begin() + static_cast<int64_t>(begin), count,
                tokens.end() - static_cast<int64_t>(count));
  }

 private:
  static constexpr size_t kMaxWords = 1 << 18;  // about 20 MiB

  struct Place {
    size_t begin;  // where the tokens of the word occurred first
    size_t count;
  };
  std::unordered_map<std::string_view, Place> places_;
};

}  // namespace trireme::data
