// The WordPiece tokenizer of BERT (Devlin et al., arXiv:1810.04805): words are split at white space
// and punctuation, and then into the longest pieces of the vocabulary, from left to right.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "data/files/lines.h"
#include "data/formats/formats.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokenizers/unicode.h"
#include "data/tokenizers/word_cache.h"

namespace trireme::data {
namespace {

constexpr std::string_view kContinuation = "##";  // before pieces that do not begin a word
constexpr int64_t kMaxWordCharacters = 100;       // longer words are unknown, as in BERT

// Pieces by their text.
using Pieces = std::unordered_map<std::string_view, int32_t>;

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xc0) != 0x80; });
}

// Calls word(text) for each word of normalized text: what spaces separate, with each punctuation
// character as a word of its own.
template <class Word>
void for_each_word(std::string_view text, Word word) {
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) word(text.substr(begin, end - begin));
  };
  for (size_t at = 0; at < text.size();) {
    const auto [character, length] = utf8_character(text, at);
    const bool space = character == ' ';
    if (space || is_punctuation(character)) {
      end_word(at);
      if (!space) word(text.substr(at, length));
      begin = at + length;
    }
    at += length;
  }
  end_word(text.size());
}

class WordPiece final : public Tokenizer {
 public:
  // `names` are the tokens in the order of their ids.
  WordPiece(const TokenizerConfig& config, std::string content, std::vector<std::string> names,
            const SpecialTokens& special)
      : Tokenizer(config, {{config.wordpiece().vocab(), std::move(content)}}),
        bert_{config.wordpiece().lowercase(), config.wordpiece().strip_accents()},
        names_(std::move(names)),
        special_(special) {
    for (const std::string& name : names_) {
      const auto id = static_cast<int32_t>(texts_.size());
      const bool continues = name.size() > kContinuation.size() && name.starts_with(kContinuation);
      const std::string_view piece =
          std::string_view(name).substr(continues ? kContinuation.size() : 0);
      (continues ? continuations_ : beginnings_).emplace(piece, id);
      texts_.push_back(continues ? std::string(piece) : " " + name);
      max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
    }
    for (const int32_t token :
         {special_.unknown, special_.begin, special_.end, special_.pad, special_.mask}) {
      if (token != SpecialTokens::kNone) name_special(names_.at(static_cast<size_t>(token)), token);
    }
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(names_.size()); }
  const SpecialTokens& special() const override { return special_; }
  const std::string& text_of(int32_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  std::string description() const override {
    return fmt::format("WordPiece with {} tokens", vocab_size());
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    check_utf8(text);
    const std::string normalized = bert_normalized(text, bert_);
    std::vector<int32_t> tokens;
    WordCache cache;
    for_each_word(normalized, [&](std::string_view word) {
      cache.append(word, tokens, [&](std::string_view added, std::vector<int32_t>& to) {
        append_pieces(added, to);
      });
    });
    return tokens;
  }

 protected:
  bool marks_words() const override { return true; }

 private:
  struct Piece {
    int32_t token = SpecialTokens::kNone;
    size_t bytes = 0;
  };
  // Returns the longest piece at the beginning of `text`.
  Piece longest(std::string_view text, const Pieces& pieces) const {
    for (size_t bytes = std::min(text.size(), max_piece_bytes_); bytes > 0; --bytes) {
      const auto found = pieces.find(text.substr(0, bytes));
      if (found != pieces.end()) return {found->second, bytes};
    }
    return {};
  }
  void append_pieces(std::string_view word, std::vector<int32_t>& tokens) const {
    const size_t begin = tokens.size();
    bool known = count_characters(word) <= kMaxWordCharacters;
    for (size_t at = 0; known && at < word.size();) {
      const Piece piece = longest(word.substr(at), at == 0 ? beginnings_ : continuations_);
      known = piece.bytes > 0;
      tokens.push_back(piece.token);
      at += piece.bytes;
    }
    if (known) return;
    tokens.resize(begin);
    tokens.push_back(special_.unknown);
  }

  const BertText bert_;
  const std::vector<std::string> names_;
  std::vector<std::string> texts_;
  Pieces beginnings_, continuations_;  // their keys are parts of names_
  size_t max_piece_bytes_ = 0;
  const SpecialTokens special_;
};

std::vector<std::string> read_pieces(const TokenizerFile& file) {
  std::vector<std::string> names;
  std::unordered_map<std::string, int64_t> lines;
  for_each_line(file.content, [&](std::string_view line, int64_t number) {
    std::string name(line);
    const std::string where = fmt::format("{}: line {}", file.name, number);
    if (name.empty()) throw DataError(where, "is empty; each line is a token");
    try {
      check_utf8(name);
    } catch (const Error& error) {
      throw DataError(where, error.what());
    }
    if (names.size() >= static_cast<size_t>(kMaxClasses)) {
      throw DataError(where, fmt::format("a vocabulary has at most {} tokens", kMaxClasses));
    }
    const auto [other, added] = lines.emplace(name, number);
    if (!added) {
      throw DataError(where, fmt::format("token '{}' is in line {}, too", name, other->second));
    }
    names.push_back(std::move(name));
  });
  return names;
}

SpecialTokens find_special(const std::vector<std::string>& names, const std::string& path) {
  const auto id = [&](std::string_view name) {
    const auto found = std::ranges::find(names, name);
    return found == names.end() ? SpecialTokens::kNone
                                : static_cast<int32_t>(found - names.begin());
  };
  const SpecialTokens special{.unknown = id("[UNK]"),
                              .begin = id("[CLS]"),
                              .end = id("[SEP]"),
                              .pad = id("[PAD]"),
                              .mask = id("[MASK]")};
  if (special.unknown == SpecialTokens::kNone || names.size() < 2) {
    throw DataError(path, "has no token [UNK]; is it the vocab.txt of a WordPiece tokenizer?");
  }
  return special;
}

}  // namespace

std::shared_ptr<const Tokenizer> make_wordpiece(const WordPieceConfig& options,
                                                const TokenizerFile& vocab) {
  std::vector<std::string> names = read_pieces(vocab);
  const SpecialTokens special = find_special(names, vocab.name);
  TokenizerConfig config;
  WordPieceConfig& wordpiece = *config.mutable_wordpiece();
  wordpiece.set_lowercase(options.lowercase());
  wordpiece.set_strip_accents(options.has_strip_accents() ? options.strip_accents()
                                                          : options.lowercase());
  return std::make_shared<WordPiece>(config, vocab.content, std::move(names), special);
}

}  // namespace trireme::data
