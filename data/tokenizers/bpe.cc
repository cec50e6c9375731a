// The byte-level byte pair encoding of GPT-2 (Sennrich et al., arXiv:1508.07909; Radford et al.,
// "Language Models are Unsupervised Multitask Learners", 2019).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/files/lines.h"
#include "data/formats/formats.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/unicode.h"
#include "data/tokenizers/word_cache.h"

namespace trireme::data {
namespace {

constexpr size_t kBytes = 256;
constexpr int32_t kNoToken = -1;

// The characters by which vocab.json and merges.txt write bytes: printable characters of Latin-1
// stand for themselves, and the others are numbered from U+0100.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    int32_t next = kBytes;
    for (int32_t byte = 0; byte < static_cast<int32_t>(kBytes); ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
      const int32_t character = itself ? byte : next++;
      names_.at(static_cast<size_t>(byte)) = to_utf8(character);
      bytes_.emplace(character, static_cast<char>(byte));
    }
  }
  const std::string& name_of(size_t byte) const { return names_.at(byte); }
  // Returns the bytes that a token of the vocabulary stands for. The names of special tokens may
  // have other characters, which stand for themselves.
  std::string bytes_of(const std::string& name) const {
    std::string bytes;
    for (size_t at = 0; at < name.size();) {
      const auto [character, length] = utf8_character(name, at);
      const auto found = bytes_.find(character);
      if (length == 0 || found == bytes_.end()) return name;
      bytes += found->second;
      at += length;
    }
    return bytes;
  }

 private:
  std::array<std::string, kBytes> names_;
  std::unordered_map<int32_t, char> bytes_;
};

// Splits text by the pattern of GPT-2:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// It has a lookahead, which RE2 does not have: white space before a word does not include its last
// character.
class WordSplitter {
 public:
  // `text` is UTF-8.
  explicit WordSplitter(std::string_view text) : text_(text) {}

  // Returns the next word; empty at the end of the text.
  std::string_view next() {
    const size_t begin = at_;
    at_ = end_of_word(begin);
    return text_.substr(begin, at_ - begin);
  }

 private:
  struct Character {
    CharacterClass kind = CharacterClass::kSpace;
    size_t bytes = 0;  // 0 at the end of the text
  };
  Character character(size_t at) const {
    if (at >= text_.size()) return {};
    const auto [code, bytes] = utf8_character(text_, at);
    return {character_class(code), bytes};
  }

  size_t end_of_word(size_t begin) const {
    if (const size_t length = contraction(begin); length > 0) return begin + length;
    const Character first = character(begin);
    if (first.kind != CharacterClass::kSpace) return end_of_run(begin, first.kind);
    const Character second = character(begin + first.bytes);
    if (text_.substr(begin, 1) == " " && second.kind != CharacterClass::kSpace) {
      return end_of_run(begin + 1, second.kind);
    }
    return end_of_spaces(begin);
  }
  // Returns the length of 's, 't, 're, 've, 'm, 'll or 'd; 0 if the text does not continue so.
  size_t contraction(size_t begin) const {
    if (begin >= text_.size() || text_[begin] != '\'') return 0;
    const std::string_view two = text_.substr(begin + 1, 2);
    if (!two.empty() && std::string_view("stmd").find(two[0]) != std::string_view::npos) return 2;
    return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
  }
  size_t end_of_run(size_t at, CharacterClass kind) const {
    for (Character c = character(at); c.bytes > 0 && c.kind == kind; c = character(at)) {
      at += c.bytes;
    }
    return at;
  }
  size_t end_of_spaces(size_t begin) const {
    size_t at = begin, last = begin;  // `last` is the beginning of the last character
    for (Character c = character(at); c.bytes > 0 && c.kind == CharacterClass::kSpace;
         c = character(at)) {
      last = at;
      at += c.bytes;
    }
    return at == text_.size() || last == begin ? at : last;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// A pair of tokens that is replaced by one.
struct Merge {
  int32_t rank;  // pairs of lower rank are replaced first
  int32_t token;
};

class MergeTable {
 public:
  // Returns false if the pair has a merge already.
  bool add(int32_t left, int32_t right, Merge merge) {
    made_.insert(merge.token);
    return merges_.emplace(key(left, right), merge).second;
  }
  const Merge* find(int32_t left, int32_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  int32_t size() const { return static_cast<int32_t>(merges_.size()); }
  // Returns whether any merge makes the token.
  bool makes(int32_t token) const { return made_.contains(token); }

 private:
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  std::unordered_map<uint64_t, Merge> merges_;
  std::unordered_set<int32_t> made_;
};

// Merges the tokens of one word: always the pair of the lowest rank, and of those the leftmost. A
// word of n bytes takes O(n log n).
class Merger {
 public:
  explicit Merger(const MergeTable& merges) : merges_(merges) {}

  // Appends the tokens of a word. `token_of_byte` has the token of each byte.
  void append(std::string_view word, const std::array<int32_t, kBytes>& token_of_byte,
              std::vector<int32_t>& tokens) {
    symbols_.clear();
    for (const char byte : word) {
      const auto at = static_cast<int64_t>(symbols_.size());
      symbols_.push_back({token_of_byte[static_cast<uint8_t>(byte)], at - 1, at + 1});
    }
    for (int64_t at = 0; at + 1 < std::ssize(symbols_); ++at) offer(at);
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      merge(pair);
    }
    for (int64_t at = 0; at < std::ssize(symbols_); at = symbol(at).next) {
      tokens.push_back(symbol(at).token);
    }
  }

 private:
  struct Symbol {
    int32_t token;  // kNoToken if it has been merged into the one before it
    int64_t previous, next;
  };
  struct Pair {
    int32_t rank;
    int32_t token;
    int64_t at;  // of the left token
    bool operator<(const Pair& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  Symbol& symbol(int64_t at) { return symbols_[at]; }

  // Adds the pair of the symbol at `at` and its successor if it can be merged.
  void offer(int64_t at) {
    if (at < 0 || symbol(at).next >= std::ssize(symbols_)) return;
    const Merge* found = merges_.find(symbol(at).token, symbol(symbol(at).next).token);
    if (found) pairs_.push({found->rank, found->token, at});
  }
  // Does nothing if one of the tokens has been merged with another one since the pair was added.
  void merge(const Pair& pair) {
    Symbol& left = symbol(pair.at);
    if (left.token == kNoToken || left.next >= std::ssize(symbols_)) return;
    const int64_t removed = left.next;
    const Merge* found = merges_.find(left.token, symbol(removed).token);
    if (!found || found->token != pair.token) return;
    left.token = found->token;
    left.next = symbol(removed).next;
    symbol(removed).token = kNoToken;
    if (left.next < std::ssize(symbols_)) symbol(left.next).previous = pair.at;
    offer(left.previous);
    offer(pair.at);
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
};

class Bpe final : public Tokenizer {
 public:
  Bpe(TokenizerConfig config, std::vector<TokenizerFile> files, std::vector<std::string> texts,
      std::array<int32_t, kBytes> token_of_byte, MergeTable merges, SpecialTokens special)
      : Tokenizer(std::move(config), std::move(files)),
        texts_(std::move(texts)),
        token_of_byte_(token_of_byte),
        merges_(std::move(merges)),
        special_(special) {
    for (int32_t token = 0; token < vocab_size(); ++token) {
      if (is_special(token)) name_special(text_of(token), token);
    }
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  const SpecialTokens& special() const override { return special_; }
  const std::string& text_of(int32_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  std::string description() const override {
    return fmt::format("BPE with {} tokens", vocab_size());
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    check_utf8(text);
    std::vector<int32_t> tokens;
    WordCache cache;
    Merger merger(merges_);
    WordSplitter words(text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
      cache.append(word, tokens, [&](std::string_view added, std::vector<int32_t>& to) {
        merger.append(added, token_of_byte_, to);
      });
    }
    return tokens;
  }

 protected:
  bool marks_words() const override { return false; }

 private:
  // Returns whether the token has a name in brackets, such as <|im_start|>, and cannot be made of
  // text.
  bool is_special(int32_t token) const {
    const std::string& text = text_of(token);
    const bool bracketed = (text.starts_with('<') && text.ends_with('>')) ||
                           (text.starts_with('[') && text.ends_with(']'));
    return bracketed && text.size() > 2 && !merges_.makes(token);
  }

  const std::vector<std::string> texts_;  // of each token
  const std::array<int32_t, kBytes> token_of_byte_;
  const MergeTable merges_;
  const SpecialTokens special_;
};

using Ids = std::unordered_map<std::string, int32_t>;

// Returns the names of the tokens in the order of their ids.
std::vector<std::string> read_vocab(const TokenizerFile& file) {
  const nlohmann::json json = parse_json(file.content, /*throws=*/false);
  if (!json.is_object()) {
    throw DataError(file.name,
                    "is not a JSON object of tokens and their ids, as in GPT-2's vocab.json");
  }
  if (json.size() < 2 || json.size() > static_cast<size_t>(kMaxClasses)) {
    throw DataError(
        file.name, fmt::format("has {} tokens, which is not in [2, {}]", json.size(), kMaxClasses));
  }
  std::vector<std::string> names(json.size());
  std::vector<bool> used(json.size());
  for (const auto& [name, value] : json.items()) {
    const bool integer = value.is_number_integer();
    const int64_t id = integer ? value.get<int64_t>() : -1;
    if (id < 0 || id >= std::ssize(names)) {
      throw DataError(file.name,
                      fmt::format("the id of token '{}' is {}; ids are integers in [0, {})", name,
                                  value.dump(), names.size()));
    }
    const auto place = static_cast<size_t>(id);
    if (used[place]) {
      throw DataError(file.name,
                      fmt::format("tokens '{}' and '{}' have the same id", names[place], name));
    }
    used[place] = true;
    names[place] = name;
  }
  return names;
}

int32_t id_of(const Ids& ids, const std::string& name, const std::string& where) {
  const auto found = ids.find(name);
  if (found != ids.end()) return found->second;
  throw DataError(where, fmt::format("'{}' is not in the vocabulary", name));
}

MergeTable read_merges(const TokenizerFile& file, const Ids& ids) {
  MergeTable merges;
  for_each_line(file.content, [&](std::string_view line, int64_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const std::string where = fmt::format("{}: line {}", file.name, number);
    const size_t space = line.find(' ');
    const bool two = space != line.npos && space > 0 && space + 1 < line.size() &&
                     line.find(' ', space + 1) == line.npos;
    if (!two) {
      throw DataError(where, fmt::format("'{}' is not two tokens separated by a space", line));
    }
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    const Merge merge{merges.size(), id_of(ids, left + right, where)};
    if (!merges.add(id_of(ids, left, where), id_of(ids, right, where), merge)) {
      throw DataError(where, fmt::format("'{}' occurs in an earlier line, too", line));
    }
  });
  return merges;
}

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe(const TokenizerFile& vocab, const TokenizerFile& merges) {
  const ByteAlphabet alphabet;
  std::vector<std::string> names = read_vocab(vocab);
  Ids ids;
  for (const std::string& name : names) ids.emplace(name, static_cast<int32_t>(ids.size()));
  std::array<int32_t, kBytes> token_of_byte{};
  for (size_t byte = 0; byte < kBytes; ++byte) {
    const auto found = ids.find(alphabet.name_of(byte));
    if (found == ids.end()) {
      throw DataError(vocab.name, fmt::format("has no token for byte 0x{:02x} ('{}'); is it the "
                                              "vocabulary of a byte-level BPE?",
                                              byte, alphabet.name_of(byte)));
    }
    token_of_byte[byte] = found->second;
  }
  MergeTable table = read_merges(merges, ids);
  SpecialTokens special;
  if (const auto end = ids.find("<|endoftext|>"); end != ids.end()) special.end = end->second;
  for (std::string& name : names) name = alphabet.bytes_of(name);
  TokenizerConfig config;
  const BpeConfig& bpe = *config.mutable_bpe();
  std::vector<TokenizerFile> files{{bpe.vocab(), vocab.content}, {bpe.merges(), merges.content}};
  return std::make_shared<Bpe>(std::move(config), std::move(files), std::move(names), token_of_byte,
                               std::move(table), special);
}

}  // namespace trireme::data
