#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/vectorized.h"
#include "data/files/file.h"
#include "data/files/file_names.h"
#include "data/files/mapped_file.h"
#include "data/formats/formats.h"
#include "data/formats/token_windows.h"
#include "data/token_text.h"

namespace trireme::data {
namespace {

template <class T>
TRIREME_INLINE inline uint32_t largest_of(const T* tokens, size_t count) {
  T result = 0;
  for (size_t i = 0; i < count; ++i) result = std::max(result, tokens[i]);
  return result;
}
TRIREME_VECTORIZED uint32_t largest(const uint16_t* tokens, size_t count) {
  return largest_of(tokens, count);
}
TRIREME_VECTORIZED uint32_t largest(const uint32_t* tokens, size_t count) {
  return largest_of(tokens, count);
}

TRIREME_VECTORIZED void copy_tokens(const uint16_t* from, size_t count, int32_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i];
}
void copy_tokens(const uint32_t* from, size_t count, int32_t* to) {
  std::memcpy(to, from, count * 4);
}

// Whether these tokens look like the low and high halves of numbers that are twice as wide: the
// high halves of ids below 2^18 are at most 3.
template <class T>
bool are_halves(const T* tokens, size_t count) {
  constexpr size_t kEnough = 64, kMost = 1 << 16;
  const T high = sizeof(T) == 2 ? 3 : 0;
  count = std::min(count, kMost);
  if (count < kEnough) return false;
  bool varies = false;
  for (size_t i = 0; i + 1 < count; i += 2) {
    if (tokens[i + 1] > high) return false;
    varies = varies || tokens[i] > high;
  }
  return varies;
}

class TokenFile {
 public:
  // `length` is the number of tokens per sample.
  TokenFile(const std::string& path, const TokensConfig& config, Part part, BadRecordPolicy& policy)
      : file_(path), length_(config.length()) {
    check_is_raw();
    const TokensConfig::Kind kind = config.kind();
    const TokenHeader* header = kind == TokensConfig::AUTO ? find_header() : nullptr;
    begin_ = header ? kTokenHeaderBytes : 0;
    width_ = header ? header->width : (kind == TokensConfig::UINT32 ? 4 : 2);
    const size_t bytes = file_.bytes().size() - begin_;
    count_ = static_cast<int64_t>(bytes / width_);
    if (!header) check_width(kind);
    if (header) {
      check_count(declared(), bytes, policy);
    } else if (bytes % width_ != 0) {
      policy.add(DataError(path, fmt::format("ends within a token of {} bytes: it is truncated, or "
                                             "data.tokens.kind is wrong",
                                             width_)));
    }
    windows_ = TokenWindows(count_, length_, part, config.random_offset());
  }

  const std::string& path() const { return file_.path(); }
  int64_t count() const { return count_; }
  const TokenWindows& windows() const { return windows_; }

  uint32_t largest(int64_t begin, int64_t count) const {
    return visit(begin, [&](const auto* tokens) { return data::largest(tokens, count); });
  }
  uint32_t at(int64_t place) const {
    return visit(place, [](const auto* token) { return uint32_t{*token}; });
  }
  // Throws DataError that names the first of these tokens that is not in [0, vocab_size).
  void check(int64_t begin, int64_t count, int64_t vocab_size) const {
    if (largest(begin, count) < vocab_size) return;
    int64_t place = begin;
    while (at(place) < vocab_size) ++place;
    throw DataError(fmt::format("{}: token {}", path(), place),
                    fmt::format("{} is not in the vocabulary, [0, {})", at(place), vocab_size));
  }
  void copy(int64_t begin, int64_t count, int32_t* to) const {
    visit(begin, [&](const auto* tokens) { copy_tokens(tokens, count, to); });
  }

 private:
  int32_t word(size_t i) const {
    int32_t value = 0;
    std::memcpy(&value, file_.bytes().data() + i * sizeof value, sizeof value);
    return value;
  }
  // Throws DataError for formats whose bytes are also valid tokens.
  void check_is_raw() const {
    const auto begins_with = [&](std::string_view magic) {
      return file_.bytes().size() >= magic.size() &&
             std::memcmp(file_.bytes().data(), magic.data(), magic.size()) == 0;
    };
    if (begins_with("\x93NUMPY")) {
      throw DataError(path(),
                      "is a NumPy file; save the tokens alone: np.load(path).tofile(other)");
    }
    if (begins_with("\x1f\x8b\x08")) {
      throw DataError(path(),
                      "is compressed by gzip; tokens are mapped into memory, so decompress it");
    }
  }
  // Throws DataError if the tokens seem to be wider than width_.
  void check_width(TokensConfig::Kind kind) const {
    const bool wider = visit(
        0, [&](const auto* tokens) { return are_halves(tokens, static_cast<size_t>(count_)); });
    if (!wider || kind == TokensConfig::UINT16) return;
    throw DataError(path(),
                    width_ == 2
                        ? "looks like integers of more than 2 bytes, since every second pair of "
                          "bytes is almost 0; set data.tokens.kind: UINT32 if they have 4 bytes, "
                          "or UINT16 if they have 2"
                        : "looks like integers of 8 bytes, since every second token of 4 bytes is "
                          "0; convert it: np.fromfile(path, np.int64).astype(np.uint32)"
                          ".tofile(other)");
  }
  const TokenHeader* find_header() const {
    if (file_.bytes().size() < sizeof(int32_t)) return nullptr;
    const auto* header = std::ranges::find(kTokenHeaders, word(0), &TokenHeader::magic);
    if (header == kTokenHeaders.end()) return nullptr;
    if (file_.bytes().size() < kTokenHeaderBytes) {
      throw DataError(path(), fmt::format("is {} bytes long; the llm.c header alone has {}",
                                          file_.bytes().size(), kTokenHeaderBytes));
    }
    if (word(1) != header->version) {
      throw DataError(path(), fmt::format("has llm.c header version {}; only {} is supported",
                                          word(1), header->version));
    }
    return header;
  }
  int64_t declared() const {
    if (word(2) >= 0) return word(2);
    throw DataError(path(),
                    fmt::format("has an invalid header, which declares {} tokens", word(2)));
  }
  void check_count(int64_t declared, size_t bytes, BadRecordPolicy& policy) {
    if (count_ < declared) {
      const DataError truncation(
          fmt::format("{}: token {}", path(), count_),
          fmt::format("is truncated: the header declares {} tokens", declared));
      const auto samples = [&](int64_t tokens) {
        return std::max<int64_t>(0, tokens - 1) / length_;
      };
      policy.add(truncation, std::max<int64_t>(1, samples(declared) - samples(count_)));
    } else if (const size_t expected = declared * width_; bytes > expected) {
      throw DataError(path(),
                      fmt::format("has {} bytes after its {} tokens", bytes - expected, declared));
    }
  }

  // Mapped memory is page-aligned, so the tokens are aligned, too.
  template <class Work>
  std::invoke_result_t<Work, const uint16_t*> visit(int64_t begin, Work work) const {
    const uint8_t* at = file_.bytes().data() + begin_ + begin * width_;
    return width_ == 2 ? work(reinterpret_cast<const uint16_t*>(at))
                       : work(reinterpret_cast<const uint32_t*>(at));
  }

  MappedFile file_;
  int64_t length_;
  size_t begin_ = 0;
  size_t width_ = 2;
  int64_t count_ = 0;
  TokenWindows windows_{0, 1, Part::kTraining};
};

void check_tokens(const DataConfig& config, Part part) {
  if (config.tokens().has_tokenizer() && config.tokens().has_vocab_file()) {
    throw ConfigError("data.tokens.vocab_file", "cannot be combined with data.tokens.tokenizer");
  }
  if (config.has_holdout() && config.tokens().eval_size() > 0) {
    throw ConfigError("data.tokens.eval",
                      "cannot be combined with data.holdout, which replaces it");
  }
  if (config.has_holdout() && config.tokens().random_offset()) {
    throw ConfigError("data.tokens.random_offset",
                      "cannot be combined with data.holdout, since windows would overlap with "
                      "held-out ones");
  }
  if (part == Part::kEvaluation && config.tokens().eval().empty()) {
    throw ConfigError("data.tokens.eval",
                      "is missing; set it, or set data.holdout: 0.1 to hold out a part of "
                      "data.tokens.train");
  }
}

std::vector<TokenFile> open_files(const DataConfig& config, Part part, BadRecordPolicy& policy) {
  const TokensConfig& tokens = config.tokens();
  const bool training = part == Part::kTraining;
  std::vector<TokenFile> files;
  for (const std::string& path :
       expand_names(config.root(), training ? tokens.train() : tokens.eval(),
                    training ? "data.tokens.train" : "data.tokens.eval")) {
    files.emplace_back(path, tokens, part, policy);
  }
  return files;
}

int64_t count_vocabulary(const std::vector<TokenFile>& files) {
  int64_t vocabulary = 2;
  for (const TokenFile& file : files) {
    const int64_t largest_token = file.largest(0, file.count());
    if (largest_token >= kMaxClasses) {
      throw DataError(file.path(), fmt::format("contains token {}, but a vocabulary has at most {} "
                                               "tokens; is data.tokens.kind right?",
                                               largest_token, kMaxClasses));
    }
    vocabulary = std::max(vocabulary, largest_token + 1);
  }
  return vocabulary;
}

std::shared_ptr<const Tokenizer> read_tokenizer(const DataConfig& config) {
  const TokensConfig& tokens = config.tokens();
  if (!tokens.has_tokenizer()) return {};
  auto tokenizer = open_tokenizer(tokens.tokenizer(), config.root(), "data.tokens.tokenizer");
  if (tokens.has_vocab_size() && tokens.vocab_size() != tokenizer->vocab_size()) {
    throw ConfigError("data.tokens.vocab_size",
                      fmt::format("is {}, but the tokenizer is {}", tokens.vocab_size(),
                                  tokenizer->description()));
  }
  return tokenizer;
}

// Returns the names of the tokens, or nothing if there is no file of them.
std::vector<std::string> read_names(const DataConfig& config) {
  const TokensConfig& tokens = config.tokens();
  if (!tokens.has_vocab_file()) return {};
  const std::string path = find_file(config.root(), std::vector<std::string>{tokens.vocab_file()});
  std::vector<std::string> names = read_lines(path);
  if (tokens.has_vocab_size() && tokens.vocab_size() != std::ssize(names)) {
    throw ConfigError(
        "data.tokens.vocab_size",
        fmt::format("is {}, but {} names {} tokens", tokens.vocab_size(), path, names.size()));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (TokenText::is_name(names[i])) continue;
    throw DataError(fmt::format("{}: line {}", path, i + 1),
                    fmt::format("'{}' is not the name of a character or a byte", names[i]));
  }
  if (names.size() < 2) throw DataError(path, "names fewer than 2 tokens");
  return names;
}

// What the tokens stand for, if it is known: either their names or the tokenizer.
struct Meaning {
  std::vector<std::string> names;
  std::shared_ptr<const Tokenizer> tokenizer;

  explicit Meaning(const DataConfig& config)
      : names(read_names(config)), tokenizer(read_tokenizer(config)) {}
};

int64_t find_vocabulary(const DataConfig& config, Part part, const std::vector<TokenFile>& files,
                        const Meaning& meaning) {
  const std::vector<std::string>& names = meaning.names;
  if (meaning.tokenizer) return meaning.tokenizer->vocab_size();
  if (!names.empty()) return checked_classes(std::ssize(names), "data.tokens.vocab_file");
  const TokensConfig& tokens = config.tokens();
  if (tokens.has_vocab_size()) {
    return checked_classes(tokens.vocab_size(), "data.tokens.vocab_size");
  }
  if (part == Part::kTraining) return count_vocabulary(files);
  BadRecordPolicy policy(bad_record_limit(config));  // opening the training part reports them
  return count_vocabulary(open_files(config, Part::kTraining, policy));
}

// Returns the mean number of bytes that the tokens stand for; 0 if that is not known.
double bytes_per_token(const std::vector<TokenFile>& files, const Meaning& meaning) {
  std::vector<int64_t> bytes;
  const auto add_all = [&](const auto& text, int64_t count) {
    for (int32_t i = 0; i < count; ++i) bytes.push_back(std::ssize(text.text_of(i)));
  };
  if (meaning.tokenizer) {
    add_all(*meaning.tokenizer, meaning.tokenizer->vocab_size());
  } else {
    add_all(TokenText(meaning.names), std::ssize(meaning.names));
  }
  if (std::ranges::all_of(bytes, [](int64_t count) { return count == 1; })) {
    return bytes.empty() ? 0 : 1;
  }
  int64_t sum = 0, tokens = 0;
  for (const TokenFile& file : files) {
    for (int64_t i = 0; i < file.count(); ++i) {
      const uint32_t token = file.at(i);
      sum += token < bytes.size() ? bytes[token] : 0;
    }
    tokens += file.count();
  }
  return static_cast<double>(sum) / static_cast<double>(tokens);
}

class Tokens final : public Dataset {
 public:
  Tokens(std::vector<TokenFile> files, SampleSpec spec, Meaning meaning, uint64_t seed,
         BadRecords bad)
      : files_(std::move(files)),
        spec_(std::move(spec)),
        meaning_(std::move(meaning)),
        seed_(seed),
        bad_(std::move(bad)) {
    for (const TokenFile& file : files_) {
      size_ += file.windows().size();
      ends_.push_back(size_);
      unused_ += file.windows().unused();
    }
  }

  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const auto [file, begin] = find(id.index, id.epoch);
    const auto length = static_cast<size_t>(spec_.input.shape[0]);
    const int64_t used = file.windows().inputs_at(begin);
    file.check(begin, used + 1, spec_.classes);
    const std::span inputs(reinterpret_cast<int32_t*>(input), length);
    const std::span targets(reinterpret_cast<int32_t*>(target), length);
    file.copy(begin, used, inputs.data());
    file.copy(begin + 1, used, targets.data());
    pad_window(inputs, targets, used);
  }
  std::string description() const override {
    const std::string more =
        files_.size() > 1 ? fmt::format(" and {} more", files_.size() - 1) : "";
    const std::string unused =
        unused_ > 0 ? fmt::format(", {} tokens at the ends of files unused", unused_) : "";
    return fmt::format("tokens {}{}: {}{}{}", files_[0].path(), more, describe(spec_, size_),
                       unused, skipped_note(bad_));
  }
  bool continues(SampleId id) const override {
    return id.index > 0 && !std::ranges::binary_search(ends_, id.index);
  }
  std::string where(int64_t index) const override {
    const auto [file, begin] = find(index, 0);
    return fmt::format("{}: token {}", file.path(), begin);
  }
  BadRecords bad_records() const override { return bad_; }
  std::vector<std::string> class_names() const override { return meaning_.names; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return meaning_.tokenizer; }

 private:
  struct Place {
    const TokenFile& file;
    int64_t begin;
  };
  Place find(int64_t index, int64_t epoch) const {
    const size_t at = std::ranges::upper_bound(ends_, index) - ends_.begin();
    const int64_t first = at == 0 ? 0 : ends_[at - 1];
    const TokenFile& file = files_.at(at);
    return {file, file.windows().begin(index - first, seed_, epoch)};
  }

  const std::vector<TokenFile> files_;
  const SampleSpec spec_;
  const Meaning meaning_;
  const uint64_t seed_;
  const BadRecords bad_;
  std::vector<int64_t> ends_;  // number of samples in each file and all files before it
  int64_t size_ = 0;
  int64_t unused_ = 0;
};

class TokenFiles final : public TokenStream {
 public:
  TokenFiles(const DataConfig& config, Part part, std::vector<TokenFile> files, BadRecords bad)
      : files_(std::move(files)),
        meaning_(config),
        vocab_size_(find_vocabulary(config, part, files_, meaning_)),
        bad_(std::move(bad)) {
    for (const TokenFile& file : files_) ends_.push_back(size_ += file.count());
    if (size_ == 0) throw DataError(files_[0].path(), "has no tokens");
  }

  int64_t size() const override { return size_; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::vector<std::string> names() const override { return meaning_.names; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return meaning_.tokenizer; }
  std::string description() const override {
    const std::string more =
        files_.size() > 1 ? fmt::format(" and {} more", files_.size() - 1) : "";
    return fmt::format("tokens {}{}: {} tokens with vocab_size {}{}", files_[0].path(), more, size_,
                       vocab_size_, skipped_note(bad_));
  }
  BadRecords bad_records() const override { return bad_; }
  void read(int64_t begin, std::span<int32_t> tokens) const override {
    while (!tokens.empty()) {
      const size_t at = std::ranges::upper_bound(ends_, begin) - ends_.begin();
      const TokenFile& file = files_.at(at);
      const int64_t place = begin - (ends_[at] - file.count());
      const int64_t count = std::min(std::ssize(tokens), ends_[at] - begin);
      file.check(place, count, vocab_size_);
      file.copy(place, count, tokens.data());
      tokens = tokens.subspan(static_cast<size_t>(count));
      begin += count;
    }
  }

 private:
  const std::vector<TokenFile> files_;
  const Meaning meaning_;
  const int64_t vocab_size_;
  const BadRecords bad_;
  std::vector<int64_t> ends_;  // number of tokens in each file and all files before it
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Part part, uint64_t seed) {
  check_tokens(config, part);
  const int64_t length = checked_length(config.tokens().length(), "data.tokens.length");
  BadRecordPolicy policy(bad_record_limit(config));
  std::vector<TokenFile> files = open_files(config, part, policy);
  int64_t samples = 0;
  for (const TokenFile& file : files) samples += file.windows().size();
  const std::string& source = files[0].path();
  policy.check(source);
  if (samples == 0 && policy.found().count == 0) {
    throw DataError(source,
                    fmt::format("has {} tokens, but a sample needs {} (data.tokens.length) plus 1 "
                                "for its target",
                                files[0].count(), length));
  }
  policy.check_not_empty(source, samples);
  Meaning meaning(config);
  SampleSpec spec = token_spec(length, find_vocabulary(config, part, files, meaning));
  spec.bytes_per_token = bytes_per_token(files, meaning);
  return std::make_unique<Tokens>(std::move(files), std::move(spec), std::move(meaning), seed,
                                  policy.found());
}

std::unique_ptr<TokenStream> open_token_files(const DataConfig& config, Part part) {
  check_tokens(config, part);
  checked_length(config.tokens().length(), "data.tokens.length");
  BadRecordPolicy policy(bad_record_limit(config));
  std::vector<TokenFile> files = open_files(config, part, policy);
  policy.check(files[0].path());
  return std::make_unique<TokenFiles>(config, part, std::move(files), policy.found());
}

}  // namespace trireme::data
