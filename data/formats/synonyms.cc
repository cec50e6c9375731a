#include "data/formats/synonyms.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/files/file.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/unicode.h"

namespace trireme::data {
namespace {

constexpr uint64_t kMaxWords = uint64_t{1} << 24;  // of a text; later words are not replaced
constexpr size_t kMaxBytes = size_t{256} << 20;    // of the synonyms of all words

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

std::string lowercase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (is_capital(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Returns the bytes of the word that begins at byte `at`, 0 if none does: letters, with apostrophes
// between them.
size_t word_at(std::string_view text, size_t at) {
  size_t end = at;
  const auto letter_at = [&](size_t i) -> size_t {
    if (i >= text.size()) return 0;
    const Utf8Character character = utf8_character(text, i);
    return character_class(character.code) == CharacterClass::kLetter ? character.bytes : 0;
  };
  while (true) {
    const size_t letter = letter_at(end);
    const bool apostrophe = end > at && end < text.size() && text[end] == '\'';
    if (letter == 0 && !(apostrophe && letter_at(end + 1) > 0)) return end - at;
    end += letter > 0 ? letter : 1;
  }
}

// Leaves only the first of equal words.
void remove_repeated(std::vector<std::string>& words) {
  std::unordered_set<std::string_view> known;
  std::vector<std::string> first;
  for (const std::string& word : words) {
    if (known.insert(word).second) first.push_back(word);
  }
  words = std::move(first);
}

// Returns a synonym with the capitals of the word that it replaces.
std::string with_case_of(std::string_view word, const std::string& synonym) {
  if (!is_capital(word[0])) return synonym;
  const bool all =
      word.size() > 1 && std::ranges::none_of(word, [](char c) { return c >= 'a' && c <= 'z'; });
  return all ? upper(synonym) : upper(synonym.substr(0, 1)) + synonym.substr(1);
}

}  // namespace

Synonyms::Synonyms(const SynonymsConfig& config, const std::string& root)
    : probability_(config.probability()) {
  if (!(probability_ >= 0 && probability_ <= 1)) {
    throw ConfigError("data.labeled_text.synonyms.probability",
                      fmt::format("{} is not in [0, 1]", probability_));
  }
  if (config.file().empty()) {
    throw ConfigError("data.labeled_text.synonyms.file",
                      "is missing; name a file whose lines list synonyms, separated by commas");
  }
  for (const std::string& name : config.file()) {
    const std::string path = find_file(root, std::vector<std::string>{name});
    int64_t number = 0;
    for (const std::string& line : read_lines(path)) {
      add_line(line, fmt::format("{}: line {}", path, ++number));
    }
    if (synonyms_.empty()) throw DataError(path, "has no synonyms");
  }
  for (auto& [word, known] : synonyms_) remove_repeated(known);
}

void Synonyms::add_line(std::string_view line, const std::string& where) {
  try {
    check_utf8(line);
  } catch (const Error& error) {
    throw DataError(where, error.what());
  }
  if (trimmed(line).empty() || line.starts_with('#')) return;
  std::vector<std::string> words;
  size_t bytes = 0;
  while (true) {
    const size_t end = std::min(line.find(','), line.size());
    words.emplace_back(trimmed(line.substr(0, end)));
    if (words.back().empty()) throw DataError(where, "has an empty word");
    bytes += sizeof(std::string) + words.back().size();
    if (end == line.size()) break;
    line.remove_prefix(end + 1);
  }
  if (words.size() == 1) {
    throw DataError(where, fmt::format("has only the word '{}'; synonyms are separated by commas",
                                       printable(words[0])));
  }
  if (bytes > (kMaxBytes - bytes_) / (words.size() - 1)) {
    throw DataError(where,
                    fmt::format("has {} words, each a synonym of all others; up to this line "
                                "the synonyms take more than {}",
                                words.size(), format_bytes(kMaxBytes)));
  }
  bytes_ += bytes * (words.size() - 1);
  for (const std::string& word : words) {
    if (word_at(word, 0) != word.size()) continue;  // several words only replace others
    std::vector<std::string>& known = synonyms_[lowercase(word)];
    for (const std::string& other : words) {
      if (other != word) known.push_back(other);
    }
  }
}

const std::vector<std::string>* Synonyms::find(std::string_view word) const {
  const auto found = synonyms_.find(lowercase(word));
  return found == synonyms_.end() || found->second.empty() ? nullptr : &found->second;
}

bool Synonyms::replace(std::string& text, const Random& random, uint64_t key) const {
  std::string changed;
  size_t copied = 0;  // bytes of `text` that are in `changed`
  uint64_t number = 0;
  for (size_t at = 0; at < text.size() && number < kMaxWords;) {
    const size_t bytes = word_at(text, at);
    if (bytes == 0) {
      at += std::max<size_t>(1, utf8_character(text, at).bytes);
      continue;
    }
    const std::string_view word = std::string_view(text).substr(at, bytes);
    const Random4 r = random.four(key * kMaxWords + number++);
    const std::vector<std::string>* synonyms = uniform(r[0]) < probability_ ? find(word) : nullptr;
    if (synonyms) {
      const uint64_t chosen = uint64_t{r[1]} * synonyms->size() >> 32;
      changed.append(text, copied, at - copied);
      changed += with_case_of(word, (*synonyms)[chosen]);
      copied = at + bytes;
    }
    at += bytes;
  }
  if (copied == 0) return false;
  changed.append(text, copied);
  text = std::move(changed);
  return true;
}

}  // namespace trireme::data
