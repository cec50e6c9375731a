// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/data.pb.h"

namespace trireme::data {

// The ids of tokens that do not stand for text; kNone if the vocabulary has no such token.
struct SpecialTokens {
  static constexpr int32_t kNone = -1;
  int32_t unknown = kNone;  // a part of a text that the vocabulary cannot express
  int32_t begin = kNone;    // the beginning of a text: [CLS], <s>
  int32_t end = kNone;      // its end: [SEP], </s>, <|endoftext|>
  int32_t pad = kNone;      // padding
  int32_t mask = kNone;     // a token that the network has to predict

  // Returns the token that fills up samples: without one for padding the end of a text, if texts
  // are not enclosed in such tokens, else token 0, which texts may contain.
  int32_t padding() const {
    if (pad != kNone) return pad;
    return begin == kNone && end != kNone ? end : 0;
  }
};

// A file that defines a tokenizer.
struct TokenizerFile {
  std::string name;
  std::string content;
};

// A vocabulary and the rules by which text is split into its tokens. All functions can be called
// from any thread.
class Tokenizer {
 public:
  // The names of the files are the defaults of the configuration.
  Tokenizer(TokenizerConfig config, std::vector<TokenizerFile> files)
      : config_(std::move(config)), files_(std::move(files)) {}
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Token ids are in [0, vocab_size). At least 2.
  virtual int32_t vocab_size() const = 0;
  virtual const SpecialTokens& special() const = 0;
  // Returns the tokens of a text. The name of a special token in the text is treated as any other
  // text, so that a text cannot contain special tokens other than `unknown`. Throws Error that
  // names the first byte that is not UTF-8.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Like encode, but names of special tokens, such as <|endoftext|> or </s>, stand for these
  // tokens. What is between them is encoded as texts of their own.
  std::vector<int32_t> encode_with_special(std::string_view text) const;
  // Returns what a token adds to the text of the tokens before it. May be a part of a UTF-8
  // character.
  virtual const std::string& text_of(int32_t token) const = 0;
  // Returns the kind and the size of the vocabulary, for messages: "BPE with 50257 tokens".
  virtual std::string description() const = 0;

  // Returns the text of the tokens. It may differ from the encoded text in white space, in
  // characters that are not in the vocabulary and, if the tokenizer ignores them, in case and
  // accents; for BPE it does not.
  std::string decode(std::span<const int32_t> tokens) const;

  // With which the tokenizer can be opened again.
  const TokenizerConfig& config() const { return config_; }
  const std::vector<TokenizerFile>& files() const { return files_; }
  // Returns the description with a hash of the configuration and the files. Tokenizers with equal
  // identities are equal.
  std::string identity() const;

 protected:
  // Returns true if text_of() begins words with a space, which decode() omits from the first word.
  virtual bool marks_words() const = 0;
  // Declares the name of a token that encode() makes of no text, for encode_with_special().
  void name_special(std::string name, int32_t token);

 private:
  // By their names, of those with the same beginning the longest first.
  std::map<std::string, int32_t, std::greater<>> special_names_;
  const TokenizerConfig config_;
  const std::vector<TokenizerFile> files_;
};

// Opens a tokenizer whose files are in folder `root`. `field` is the path of the configuration, for
// messages: "data.text.tokenizer". Throws ConfigError if the configuration is invalid, and
// DataError, with the file and line, if a file is missing or damaged.
std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerConfig& config,
                                                const std::string& root, const std::string& field);

// Writes the files of a tokenizer into a folder, which is created if it does not exist. Throws
// Error if they cannot be written.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

// Throws Error, which names the byte, if a text is not UTF-8.
void check_utf8(std::string_view text);

// The constructors of each kind, for open_tokenizer(). The names of the files are their paths, for
// messages. They throw DataError if a file is damaged.
std::shared_ptr<const Tokenizer> make_bpe(const TokenizerFile& vocab, const TokenizerFile& merges);
std::shared_ptr<const Tokenizer> make_wordpiece(const WordPieceConfig& config,
                                                const TokenizerFile& vocab);
std::shared_ptr<const Tokenizer> make_sentencepiece(const TokenizerFile& model);

// Returns a new model of SentencePiece. `type` is "unigram" or "bpe". next_line(line) sets the next
// line of the text, without its end, or returns false at the end. The model preserves texts:
// decode() returns what encode() has read. Throws Error with the message of the library, for
// example if the text is too short for so large a vocabulary.
std::string train_sentencepiece(int64_t vocab_size, const std::string& type,
                                const std::function<bool(std::string&)>& next_line);

}  // namespace trireme::data
