// SentencePiece (Kudo and Richardson, arXiv:1808.06226), by its own library in another process.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "data/formats/formats.h"
#include "data/tokenizers/sentencepiece/channel.h"
#include "data/tokenizers/sentencepiece/process.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::data {
namespace {

namespace sp = sentencepiece;

constexpr std::string_view kSpace = "\u2581";  // stands for a space in pieces

std::vector<int32_t> numbers_in(const std::string& bytes) {
  std::vector<int32_t> numbers(bytes.size() / sizeof(int32_t));
  if (!numbers.empty()) {  // otherwise data() may be null
    std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int32_t));
  }
  return numbers;
}

// Returns what a piece adds to a text.
std::string text_of_piece(sp::PieceKind kind, std::string_view piece) {
  switch (kind) {
    case sp::PieceKind::kOther:
      return "";
    case sp::PieceKind::kUnknown:
      return " \u2047 ";          // as the library writes it
    case sp::PieceKind::kByte: {  // <0xE2>
      int byte = 0;
      if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
      return {static_cast<char>(byte)};
    }
    case sp::PieceKind::kText:
      break;
  }
  std::string text;
  while (!piece.empty()) {
    const size_t end = std::min(piece.find(kSpace), piece.size());
    text += piece.substr(0, end);
    piece.remove_prefix(end);
    if (piece.empty()) break;
    text += ' ';
    piece.remove_prefix(kSpace.size());
  }
  return text;
}

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(TokenizerConfig config, std::string model)
      : Tokenizer(config, {{config.sentencepiece().model(), std::move(model)}}),
        process_({"read"}) {
    process_.send(files()[0].content);
    process_.check_status();
    const std::vector<int32_t> special = numbers_in(process_.receive());
    special_ = {.unknown = special.at(sp::kUnknown),
                .begin = special.at(sp::kBegin),
                .end = special.at(sp::kEnd),
                .pad = special.at(sp::kPad)};
    read_pieces(process_.receive());
    if (texts_.size() < 2) throw Error("has fewer than 2 pieces");
    const std::vector<int32_t> word = encode("a");
    marks_words_ =
        !word.empty() && text_of(word[0]).starts_with(' ') && word[0] != special_.unknown;
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }
  const SpecialTokens& special() const override { return special_; }
  const std::string& text_of(int32_t token) const override {
    return texts_.at(static_cast<size_t>(token));
  }
  std::string description() const override {
    return fmt::format("SentencePiece with {} tokens", vocab_size());
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    check_utf8(text);
    const std::lock_guard one_at_a_time(mutex_);
    process_.send(text);
    process_.check_status();
    return numbers_in(process_.receive());
  }

 protected:
  bool marks_words() const override { return marks_words_; }

 private:
  void read_pieces(std::string_view pieces) {
    while (!pieces.empty()) {
      const auto kind = static_cast<sp::PieceKind>(pieces[0]);
      uint32_t size = 0;
      std::memcpy(&size, pieces.data() + 1, sizeof size);
      pieces.remove_prefix(1 + sizeof size);
      const std::string_view piece = pieces.substr(0, size);
      if (kind == sp::PieceKind::kOther) {
        name_special(std::string(piece), static_cast<int32_t>(texts_.size()));
      }
      texts_.push_back(text_of_piece(kind, piece));
      pieces.remove_prefix(size);
    }
  }

  mutable std::mutex mutex_;
  mutable sp::Process process_;
  std::vector<std::string> texts_;  // of each token
  SpecialTokens special_;
  bool marks_words_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_sentencepiece(const TokenizerFile& model) {
  TokenizerConfig config;
  config.mutable_sentencepiece();
  try {
    return std::make_shared<SentencePiece>(config, model.content);
  } catch (const Error& error) {
    throw DataError(model.name, error.what());
  }
}

std::string train_sentencepiece(int64_t vocab_size, const std::string& type,
                                const std::function<bool(std::string&)>& next_line) {
  sp::Process process({"train", std::to_string(vocab_size), type});
  bool has_text = false;
  for (std::string line; next_line(line);) {
    if (line.empty()) continue;
    process.send(line);
    has_text = true;
  }
  if (!has_text) throw Error("the texts are empty; a tokenizer is trained on text");
  process.send("");
  process.check_status();
  return process.receive();
}

}  // namespace trireme::data
