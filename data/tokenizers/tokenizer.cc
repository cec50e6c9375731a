#include "data/tokenizers/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "data/files/file.h"
#include "data/fingerprint.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// Returns the file with its path as name.
TokenizerFile read_tokenizer_file(const std::string& root, const std::string& name,
                                  const std::string& field) {
  if (name.empty()) throw ConfigError(field, "is empty; name a file");
  const File file = read_file(find_file(root, std::vector<std::string>{name}));
  return {file.path, std::string(file.bytes.begin(), file.bytes.end())};
}

}  // namespace

void Tokenizer::name_special(std::string name, int32_t token) {
  special_names_.emplace(std::move(name), token);
}

std::vector<int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  check_utf8(text);
  std::vector<int32_t> tokens;
  size_t begin = 0;  // of the text after the last special token
  const auto encode_until = [&](size_t end) {
    if (end == begin) return;
    const std::vector<int32_t> part = encode(text.substr(begin, end - begin));
    tokens.insert(tokens.end(), part.begin(), part.end());
  };
  for (size_t at = 0; at < text.size();) {
    const auto found = std::ranges::find_if(special_names_, [&](const auto& special) {
      return text.substr(at).starts_with(special.first);
    });
    if (found == special_names_.end()) {
      ++at;
      continue;
    }
    encode_until(at);
    tokens.push_back(found->second);
    begin = at += found->first.size();
  }
  encode_until(text.size());
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) text += text_of(token);
  if (marks_words() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string Tokenizer::identity() const {
  uint64_t hash = checksum_of(config_.ShortDebugString());
  for (const TokenizerFile& file : files_) hash = checksum_of(file.content, hash);
  return fmt::format("{}, hash {:016x}", description(), hash);
}

std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerConfig& config,
                                                const std::string& root, const std::string& field) {
  switch (config.kind_case()) {
    case TokenizerConfig::kBpe:
      return make_bpe(read_tokenizer_file(root, config.bpe().vocab(), field + ".bpe.vocab"),
                      read_tokenizer_file(root, config.bpe().merges(), field + ".bpe.merges"));
    case TokenizerConfig::kWordpiece:
      return make_wordpiece(
          config.wordpiece(),
          read_tokenizer_file(root, config.wordpiece().vocab(), field + ".wordpiece.vocab"));
    case TokenizerConfig::kSentencepiece:
      return make_sentencepiece(read_tokenizer_file(root, config.sentencepiece().model(),
                                                    field + ".sentencepiece.model"));
    case TokenizerConfig::KIND_NOT_SET:
      break;
  }
  throw ConfigError(field, "has no kind; set bpe, wordpiece or sentencepiece");
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  create_folders(folder);
  if (fs::is_symlink(folder)) {
    throw Error(folder +
                ": is a symbolic link, which is not followed, because files are replaced there");
  }
  for (const TokenizerFile& file : tokenizer.files()) {
    replace_durably(fs::path(folder) / file.name, file.content);
  }
}

void check_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_character(text, at).bytes;
    if (length == 0) throw Error(fmt::format("is not UTF-8 at byte {}", at));
    at += length;
  }
}

}  // namespace trireme::data
