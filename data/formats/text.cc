#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "data/files/file.h"
#include "data/files/lines.h"
#include "data/formats/formats.h"
#include "data/formats/token_windows.h"

namespace trireme::data {
namespace {

constexpr int32_t kUnknown = -1;

// Returns the text behind a byte order mark.
std::string_view text_of(const File& file) {
  return without_byte_order_mark(
      {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
}

// Returns the number of bytes without a character that is cut off at the end of the text.
size_t whole_characters(std::string_view text) {
  for (size_t end = text.size(); end > 0 && text.size() - end < 4; --end) {
    const size_t length = utf8_length(static_cast<uint8_t>(text[end - 1]));
    if (length > 0) return end - 1 + length > text.size() ? end - 1 : text.size();
  }
  return text.size();
}

std::vector<int32_t> decode(const File& file) {
  const std::string_view text = text_of(file);
  std::vector<int32_t> characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [character, length] = utf8_character(text, at);
    if (length == 0) {
      const bool cut = utf8_length(static_cast<uint8_t>(text[at])) > text.size() - at;
      if (cut && !file.damage.empty()) break;  // the damage is reported
      throw DataError(file.path,
                      fmt::format("is not UTF-8 at byte {}; set data.text.vocabulary: BYTES to "
                                  "read any file",
                                  at + file.bytes.size() - text.size()));
    }
    characters.push_back(character);
    at += length;
  }
  return characters;
}

struct Text {
  std::string path;
  std::vector<int32_t> characters;  // code points, or bytes; empty with a tokenizer
};

File read_text_file(const DataConfig& config, const std::string& name, BadRecordPolicy& policy) {
  File file = read_for(policy, find_file(config.root(), std::vector<std::string>{name}));
  if (!file.damage.empty()) policy.add(DataError(file.path, file.damage));
  return file;
}

Text read_text(const DataConfig& config, const std::string& name, BadRecordPolicy& policy) {
  const File file = read_text_file(config, name, policy);
  const bool bytes = config.text().vocabulary() == TextConfig::BYTES;
  return {file.path,
          bytes ? std::vector<int32_t>(file.bytes.begin(), file.bytes.end()) : decode(file)};
}

std::string name_of_character(int32_t character) {
  switch (character) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  if (character < 0x20 || (character >= 0x7f && character < 0xa0)) {
    return fmt::format("U+{:04X}", character);
  }
  return to_utf8(character);
}

// Numbers characters in the order of their code points.
class Vocabulary {
 public:
  explicit Vocabulary(const std::vector<int32_t>& characters) {
    if (characters.empty()) return;
    numbers_.resize(static_cast<size_t>(std::ranges::max(characters)) + 1, kUnknown);
    for (const int32_t character : characters) numbers_[character] = 0;
    for (size_t character = 0; character < numbers_.size(); ++character) {
      if (numbers_[character] == kUnknown) continue;
      numbers_[character] = static_cast<int32_t>(names_.size());
      names_.push_back(name_of_character(static_cast<int32_t>(character)));
    }
  }
  static std::vector<std::string> of_bytes() {
    std::vector<std::string> names;
    for (int32_t byte = 0; byte < 256; ++byte) {
      const bool printable = byte >= 0x20 && byte < 0x7f;
      names.push_back(printable || byte == '\n' ? name_of_character(byte)
                                                : fmt::format("0x{:02x}", byte));
    }
    return names;
  }

  std::vector<int32_t> encode(const std::vector<int32_t>& characters) const {
    std::vector<int32_t> tokens(characters.size());
    std::ranges::transform(characters, tokens.begin(), [&](int32_t character) {
      const size_t place = character;
      return place < numbers_.size() ? numbers_[place] : kUnknown;
    });
    return tokens;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<int32_t> numbers_;    // number of each code point, or kUnknown
  std::vector<std::string> names_;  // name of each number
};

void check_text(const DataConfig& config, Part part) {
  const TextConfig& text = config.text();
  if (text.has_tokenizer() && text.has_vocabulary()) {
    throw ConfigError("data.text.vocabulary", "cannot be combined with data.text.tokenizer");
  }
  if (text.train_file().empty()) throw ConfigError("data.text.train_file", "is missing");
  if (text.has_eval_file() && config.has_holdout()) {
    throw ConfigError("data.text.eval_file",
                      "cannot be combined with data.holdout, which replaces it");
  }
  if (part == Part::kEvaluation && text.eval_file().empty() && !config.has_holdout()) {
    throw ConfigError("data.text.eval_file",
                      "is missing; set it, or set data.holdout: 0.1 to hold out the end of "
                      "data.text.train_file");
  }
}

// A text encoded with the vocabulary of the training text.
struct Encoded {
  Text text;
  std::vector<int32_t> tokens;
  std::vector<std::string> names;  // names of the tokens; empty with a tokenizer
  std::string training;            // path of the file that the vocabulary comes from
  std::shared_ptr<const Tokenizer> tokenizer;
  double bytes_per_token = 0;  // mean, with a tokenizer

  int64_t vocab_size() const { return tokenizer ? tokenizer->vocab_size() : std::ssize(names); }
  const char* unit() const { return tokenizer ? "token" : "character"; }
};

Encoded encode_with_tokenizer(const DataConfig& config, const std::string& name,
                              BadRecordPolicy& policy) {
  Encoded encoded;
  encoded.tokenizer =
      open_tokenizer(config.text().tokenizer(), config.root(), "data.text.tokenizer");
  const File file = read_text_file(config, name, policy);
  std::string_view text = text_of(file);
  if (!file.damage.empty()) text = text.substr(0, whole_characters(text));
  encoded.text.path = encoded.training = file.path;
  try {
    encoded.tokens = encoded.tokenizer->encode(text);
  } catch (const Error& error) {
    throw DataError(file.path, error.what());
  }
  encoded.bytes_per_token = static_cast<double>(text.size()) /
                            static_cast<double>(std::max<size_t>(1, encoded.tokens.size()));
  return encoded;
}

// `own_file` is true for evaluation samples in a separate file.
Encoded encode(const DataConfig& config, bool own_file, BadRecordPolicy& policy) {
  const TextConfig& config_text = config.text();
  const std::string& file = own_file ? config_text.eval_file() : config_text.train_file();
  if (config_text.has_tokenizer()) return encode_with_tokenizer(config, file, policy);
  Encoded encoded;
  encoded.text = read_text(config, file, policy);
  encoded.training = encoded.text.path;
  if (config_text.vocabulary() == TextConfig::BYTES) {
    encoded.names = Vocabulary::of_bytes();
    encoded.tokens = encoded.text.characters;
    return encoded;
  }
  Text training;
  if (own_file) {
    BadRecordPolicy ignored(bad_record_limit(config));  // opening the training part reports them
    training = read_text(config, config_text.train_file(), ignored);
    encoded.training = training.path;
  }
  const Vocabulary vocabulary(own_file ? training.characters : encoded.text.characters);
  encoded.names = vocabulary.names();
  encoded.tokens = vocabulary.encode(encoded.text.characters);
  if (encoded.names.size() >= 2) return encoded;
  throw DataError(encoded.training, "has fewer than 2 different characters");
}

// The range of a text's tokens that belongs to a part.
struct Range {
  int64_t begin;
  int64_t end;
};
Range range_of(const DataConfig& config, Part part, int64_t count) {
  if (!config.has_holdout()) return {0, count};
  const int64_t held_out = std::llround(config.holdout() * static_cast<double>(count));
  return part == Part::kTraining ? Range{0, count - held_out} : Range{count - held_out, count};
}

// Returns the mean number of bytes of the tokens in the range or, with a tokenizer whose tokens do
// not determine the text, of all tokens.
double bytes_per_token(const DataConfig& config, const Encoded& encoded, Range range) {
  const bool is_whole = range.end - range.begin == std::ssize(encoded.tokens);
  if (encoded.tokenizer && (is_whole || !config.text().tokenizer().has_bpe())) {
    return encoded.bytes_per_token;
  }
  if (!encoded.tokenizer && config.text().vocabulary() == TextConfig::BYTES) return 1;
  int64_t bytes = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    bytes += encoded.tokenizer ? std::ssize(encoded.tokenizer->text_of(encoded.tokens[i]))
                               : std::ssize(to_utf8(encoded.text.characters[i]));
  }
  return static_cast<double>(bytes) / static_cast<double>(range.end - range.begin);
}

class TextDataset final : public Dataset {
 public:
  // The samples are the `used` ones of `windows` over the tokens from `first` on.
  TextDataset(Encoded encoded, int64_t first, const TokenWindows& windows,
              std::vector<int64_t> used, int64_t length, double bytes_per_token, uint64_t seed,
              BadRecords bad)
      : encoded_(std::move(encoded)),
        first_(first),
        windows_(windows),
        used_(std::move(used)),
        spec_(token_spec(length, encoded_.vocab_size())),
        seed_(seed),
        bad_(std::move(bad)) {
    spec_.bytes_per_token = bytes_per_token;
    encoded_.text.characters = {};
  }

  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return std::ssize(used_); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const int64_t begin = windows_.begin(used_.at(id.index), seed_, id.epoch);
    const int64_t count = windows_.inputs_at(begin);
    const int32_t* tokens = encoded_.tokens.data() + first_ + begin;
    const auto length = static_cast<size_t>(spec_.input.shape[0]);
    const std::span inputs(reinterpret_cast<int32_t*>(input), length);
    const std::span targets(reinterpret_cast<int32_t*>(target), length);
    std::copy_n(tokens, count, inputs.begin());
    std::copy_n(tokens + 1, count, targets.begin());
    pad_window(inputs, targets, count);
  }
  std::string description() const override {
    const std::string unused =
        windows_.unused() > 0
            ? fmt::format(", {} {}s at the end unused", windows_.unused(), encoded_.unit())
            : "";
    const std::string tokenizer =
        encoded_.tokenizer ? ", " + encoded_.tokenizer->description() : std::string();
    return fmt::format("text {}: {}{}{}{}", encoded_.text.path, describe(spec_, size()), tokenizer,
                       unused, skipped_note(bad_));
  }
  bool continues(SampleId id) const override {
    return id.index > 0 && used_.at(id.index) == used_.at(id.index - 1) + 1;
  }
  std::string where(int64_t index) const override {
    return fmt::format("{}: {} {}", encoded_.text.path, encoded_.unit(),
                       first_ + windows_.begin(used_.at(index), seed_, 0));
  }
  bool in_memory() const override { return true; }
  BadRecords bad_records() const override { return bad_; }
  std::vector<std::string> class_names() const override { return encoded_.names; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return encoded_.tokenizer; }
  Checksums checksums() const override {
    Checksums sums;
    for (const std::string& name : encoded_.names) sums.targets = checksum_of(name, sums.targets);
    const std::vector<int64_t> place{first_, windows_.size(), spec_.input.shape[0]};
    sums.inputs = checksum_of(place, checksum_of(used_, checksum_of(encoded_.tokens)));
    return sums;
  }

 private:
  Encoded encoded_;
  const int64_t first_;
  const TokenWindows windows_;
  const std::vector<int64_t> used_;
  SampleSpec spec_;
  const uint64_t seed_;
  const BadRecords bad_;
};

// Returns the error about a character, at position `place`, that is not in the training text.
DataError unknown_character(const Encoded& encoded, int64_t place) {
  const auto begin = encoded.text.characters.begin();
  const int32_t character = begin[place];
  return {fmt::format("{}: line {}", encoded.text.path, 1 + std::count(begin, begin + place, '\n')),
          fmt::format("'{}' (U+{:04X}) does not occur in {}, which defines the vocabulary",
                      name_of_character(character), character, encoded.training)};
}

// Returns the windows over the tokens from `from` on that have no unknown characters. Reports the
// others to `policy`. Only evaluation files can have unknown characters.
std::vector<int64_t> known_windows(const Encoded& encoded, int64_t from,
                                   const TokenWindows& windows, BadRecordPolicy& policy) {
  std::vector<int64_t> known;
  for (int64_t window = 0; window < windows.size(); ++window) {
    const int64_t begin = windows.begin(window, 0, 0);
    const auto first = encoded.tokens.begin() + from + begin;
    const auto end = first + windows.inputs_at(begin) + 1;  // targets are shifted by one token
    const auto bad = std::find(first, end, kUnknown);
    if (bad == end) {
      known.push_back(window);
    } else {
      policy.add(unknown_character(encoded, bad - encoded.tokens.begin()));
    }
  }
  return known;
}

class TextStream final : public TokenStream {
 public:
  TextStream(Encoded encoded, Range range, BadRecords bad)
      : encoded_(std::move(encoded)), range_(range), bad_(std::move(bad)) {}

  int64_t size() const override { return range_.end - range_.begin; }
  int64_t vocab_size() const override { return encoded_.vocab_size(); }
  std::vector<std::string> names() const override { return encoded_.names; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return encoded_.tokenizer; }
  std::string description() const override {
    return fmt::format("text {}: {} {}s with vocab_size {}{}", encoded_.text.path, size(),
                       encoded_.unit(), vocab_size(), skipped_note(bad_));
  }
  BadRecords bad_records() const override { return bad_; }
  void read(int64_t begin, std::span<int32_t> tokens) const override {
    std::copy_n(encoded_.tokens.begin() + range_.begin + begin, tokens.size(), tokens.begin());
  }

 private:
  const Encoded encoded_;
  const Range range_;
  const BadRecords bad_;
};

}  // namespace

std::unique_ptr<TokenStream> open_text_stream(const DataConfig& config, Part part) {
  check_text(config, part);
  BadRecordPolicy policy(bad_record_limit(config));
  Encoded encoded = encode(config, part == Part::kEvaluation && !config.has_holdout(), policy);
  policy.check(encoded.text.path);
  const Range range = range_of(config, part, std::ssize(encoded.tokens));
  if (range.begin == range.end) {
    throw DataError(encoded.text.path, fmt::format("has no {}s for this part", encoded.unit()));
  }
  const auto unknown = std::ranges::find(encoded.tokens, kUnknown);
  if (unknown != encoded.tokens.end()) {
    throw unknown_character(encoded, unknown - encoded.tokens.begin());
  }
  return std::make_unique<TextStream>(std::move(encoded), range, policy.found());
}

std::unique_ptr<Dataset> open_text(const DataConfig& config, Part part, uint64_t seed) {
  check_text(config, part);
  const int64_t length = checked_length(config.text().length(), "data.text.length");
  BadRecordPolicy policy(bad_record_limit(config));
  Encoded encoded = encode(config, part == Part::kEvaluation && !config.has_holdout(), policy);
  const Range range = range_of(config, part, std::ssize(encoded.tokens));
  const int64_t count = range.end - range.begin;
  const TokenWindows windows(count, length, part, config.text().random_offset());
  std::vector<int64_t> known = known_windows(encoded, range.begin, windows, policy);
  policy.check(encoded.text.path);
  if (known.empty() && policy.found().count == 0) {
    throw DataError(encoded.text.path,
                    fmt::format("has {} {}s for this part, but a sample needs {} "
                                "(data.text.length) plus 1 for its target",
                                count, encoded.unit(), length));
  }
  policy.check_not_empty(encoded.text.path, std::ssize(known));
  const double bytes = bytes_per_token(config, encoded, range);
  return std::make_unique<TextDataset>(std::move(encoded), range.begin, windows, std::move(known),
                                       length, bytes, seed, policy.found());
}

}  // namespace trireme::data
