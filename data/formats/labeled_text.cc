// Texts with class labels (data.labeled_text): samples are the tokens of a text, padded.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/parse_number.h"
#include "core/text.h"
#include "data/files/file.h"
#include "data/formats/formats.h"
#include "data/formats/labeled_records.h"
#include "data/formats/synonyms.h"
#include "data/length_buckets.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// The tokens of several texts.
struct TokenizedTexts {
  std::vector<int32_t> tokens;
  std::vector<int64_t> ends;  // of each text, in `tokens`
  std::vector<int32_t> labels;
  std::vector<std::string> places;
  std::vector<std::string> texts;  // only if they are encoded again, with synonyms
  int64_t cut = 0;                 // texts that are longer than a sample

  int64_t size() const { return std::ssize(ends); }
  // Returns the tokens of a text.
  std::span<const int32_t> operator[](int64_t index) const {
    const int64_t begin = index == 0 ? 0 : ends.at(static_cast<size_t>(index) - 1);
    const int64_t end = ends.at(static_cast<size_t>(index));
    return std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
};

// Encodes texts as samples.
class TextEncoder {
 public:
  TextEncoder(std::shared_ptr<const Tokenizer> tokenizer, int64_t length)
      : tokenizer_(std::move(tokenizer)), length_(static_cast<size_t>(length)) {
    const SpecialTokens& special = tokenizer_->special();
    wraps_ = special.begin != SpecialTokens::kNone && special.end != SpecialTokens::kNone;
    if (length_ < kMinLength) {
      throw ConfigError("data.labeled_text.length",
                        fmt::format("{} is less than {}", length, kMinLength));
    }
  }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  // Returns whether texts are enclosed in special tokens.
  bool wraps() const { return wraps_; }

  // Returns at most `max` tokens, those that enclose the text included; none if the text has none.
  // Sets `cut` if it has more.
  std::vector<int32_t> encode(std::string_view text, size_t max, bool& cut) const {
    std::vector<int32_t> tokens = tokenizer_->encode(text);
    if (tokens.empty()) return tokens;
    const size_t room = max - (wraps_ ? 2 : 0);
    cut = tokens.size() > room;
    if (cut) tokens.resize(room);
    if (wraps_) {
      tokens.insert(tokens.begin(), tokenizer_->special().begin);
      tokens.push_back(tokenizer_->special().end);
    }
    return tokens;
  }
  // Appends the tokens of a record. Returns false, and appends nothing, if its text has none.
  bool append(const LabeledRecord& record, int32_t label, TokenizedTexts& texts) const {
    bool cut = false;
    const std::vector<int32_t> tokens = encode(record.text, length_, cut);
    if (tokens.empty()) return false;
    texts.cut += cut;
    texts.tokens.insert(texts.tokens.end(), tokens.begin(), tokens.end());
    texts.ends.push_back(std::ssize(texts.tokens));
    texts.labels.push_back(label);
    texts.places.push_back(record.where);
    return true;
  }

 private:
  static constexpr size_t kMinLength = 3;  // [CLS] token [SEP]

  std::shared_ptr<const Tokenizer> tokenizer_;
  size_t length_;
  bool wraps_;
};

// Changes training texts at random: replaces words by synonyms, and drops tokens.
class TextAugmentation {
 public:
  TextAugmentation(const DataConfig& config, int64_t vocab_size, uint64_t seed) : seed_(seed) {
    const LabeledTextConfig& options = config.labeled_text();
    if (options.has_synonyms()) synonyms_.emplace(options.synonyms(), config.root());
    if (!options.has_token_dropout()) return;
    const TokenDropoutConfig& dropout = options.token_dropout();
    probability_ = dropout.probability();
    if (!(probability_ >= 0 && probability_ < 1)) {
      throw ConfigError("data.labeled_text.token_dropout.probability",
                        fmt::format("{} is not in [0, 1)", probability_));
    }
    if (!dropout.has_token()) return;
    token_ = dropout.token();
    if (*token_ < 0 || *token_ >= vocab_size) {
      throw ConfigError("data.labeled_text.token_dropout.token",
                        fmt::format("{} is not in the vocabulary, [0, {})", *token_, vocab_size));
    }
  }

  bool needs_text() const { return synonyms_.has_value(); }
  // Returns ", synonyms of 12 words with probability 0.1, token dropout 0.1".
  std::string description() const {
    std::string text;
    if (synonyms_) {
      text += fmt::format(", synonyms of {} words with probability {:g}", synonyms_->words(),
                          synonyms_->probability());
    }
    return probability_ > 0 ? text + fmt::format(", token dropout {:g}", probability_) : text;
  }

  // Returns whether words of the text have been replaced.
  bool replace_words(SampleId id, std::string& text) const {
    return synonyms_->replace(text, random(RandomPurpose::kSynonym, id), key_of(id));
  }

  // Drops tokens, of which the first and the last `enclosing` stay.
  void drop_tokens(SampleId id, size_t enclosing, size_t length,
                   std::vector<int32_t>& tokens) const {
    if (probability_ == 0) return;
    const Random drops = random(RandomPurpose::kTokenDropout, id);
    const size_t end = tokens.size() - enclosing;
    std::vector<int32_t> kept(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(enclosing));
    for (size_t t = enclosing; t < end; ++t) {
      const bool drops_it = drops.uniform_at(key_of(id) * length + t) < probability_;
      if (!drops_it) kept.push_back(tokens[t]);
      if (drops_it && token_) kept.push_back(*token_);
    }
    if (kept.size() == enclosing) return;
    kept.insert(kept.end(), tokens.begin() + static_cast<ptrdiff_t>(end), tokens.end());
    tokens = std::move(kept);
  }

 private:
  Random random(RandomPurpose purpose, SampleId id) const {
    return {seed_, purpose, static_cast<uint64_t>(id.epoch)};
  }
  static uint64_t key_of(SampleId id) {
    return static_cast<uint64_t>(id.draw >= 0 ? id.draw : id.index);
  }

  const uint64_t seed_;
  std::optional<Synonyms> synonyms_;
  float probability_ = 0;  // of dropping a token
  std::optional<int32_t> token_;
};

class LabeledText final : public Dataset {
 public:
  // `augmentation` is null for texts that stay as they are.
  LabeledText(std::string source, TextEncoder encoder, TokenizedTexts texts,
              std::vector<std::string> classes, int64_t length, BadRecords bad,
              std::unique_ptr<const TextAugmentation> augmentation = nullptr)
      : source_(std::move(source)),
        encoder_(std::move(encoder)),
        tokenizer_(encoder_.tokenizer()),
        texts_(std::move(texts)),
        classes_(std::move(classes)),
        bad_(std::move(bad)),
        augmentation_(std::move(augmentation)) {
    spec_.input = {DType::kI32, Shape{length}, Layout::row_major()};
    spec_.target = label_spec();
    spec_.classes = static_cast<int>(classes_.size());
    spec_.vocab_size = tokenizer_->vocab_size();
  }

  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return texts_.size(); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    if (!augmentation_) {
      write(texts_[id.index], input);
    } else {
      write(augmented(id), input);
    }
    std::memcpy(target, &texts_.labels[id.index], sizeof(int32_t));
  }
  std::string description() const override {
    const auto stored = static_cast<double>(size() * spec_.input.shape[0]);
    const double padding = 100 * (1 - static_cast<double>(texts_.tokens.size()) / stored);
    const std::string cut =
        texts_.cut > 0 ? fmt::format(", {} texts cut off", texts_.cut) : std::string();
    return fmt::format("texts {}: {}, {}, {:.0f}% padding{}{}{}", source_, describe(spec_, size()),
                       tokenizer_->description(), padding, cut,
                       augmentation_ ? augmentation_->description() : "", skipped_note(bad_));
  }
  std::string where(int64_t index) const override {
    return texts_.places.at(static_cast<size_t>(index));
  }
  // With synonyms, reading a text encodes it.
  bool in_memory() const override { return texts_.texts.empty(); }
  BadRecords bad_records() const override { return bad_; }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const std::string& name : classes_) names.push_back(printable(name));
    return names;
  }
  std::vector<int32_t> labels() const override { return texts_.labels; }
  std::vector<int32_t> lengths() const override {
    std::vector<int32_t> lengths;
    lengths.reserve(texts_.ends.size());
    for (int64_t i = 0; i < size(); ++i) lengths.push_back(static_cast<int32_t>(texts_[i].size()));
    return lengths;
  }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  Checksums checksums() const override {
    Checksums sums{.inputs = checksum_of(texts_.ends, checksum_of(texts_.tokens)),
                   .targets = checksum_of(texts_.labels)};
    for (const std::string& name : classes_) sums.targets = checksum_of(name, sums.targets);
    return sums;
  }

 private:
  // Writes the tokens and their padding.
  void write(std::span<const int32_t> tokens, std::byte* input) const {
    const std::span inputs(reinterpret_cast<int32_t*>(input),
                           static_cast<size_t>(spec_.input.shape[0]));
    const auto rest = std::ranges::copy(tokens, inputs.begin()).out;
    std::fill(rest, inputs.end(), tokenizer_->special().padding());
  }
  // Returns the tokens of a text that has been changed at random.
  std::vector<int32_t> augmented(SampleId id) const {
    const int64_t longest = spec_.input.shape[0];
    std::vector<int32_t> tokens(texts_[id.index].begin(), texts_[id.index].end());
    if (augmentation_->needs_text()) {
      std::string text = texts_.texts.at(static_cast<size_t>(id.index));
      if (augmentation_->replace_words(id, text)) {
        bool cut = false;
        std::vector<int32_t> changed = encoder_.encode(
            text, static_cast<size_t>(stepped_length(std::ssize(tokens), longest)), cut);
        if (!changed.empty()) tokens = std::move(changed);
      }
    }
    augmentation_->drop_tokens(id, encoder_.wraps() ? 1 : 0, static_cast<size_t>(longest), tokens);
    return tokens;
  }

  const std::string source_;
  const TextEncoder encoder_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const TokenizedTexts texts_;
  const std::vector<std::string> classes_;
  SampleSpec spec_;
  const BadRecords bad_;
  const std::unique_ptr<const TextAugmentation> augmentation_;
};

// Sorts names by their bytes or, if all are integers, by their value.
void sort_classes(std::vector<std::string>& names) {
  std::ranges::sort(names);
  const auto value = [](const std::string& name) { return parse_number<int64_t>(name); };
  if (!std::ranges::all_of(names, [&](const auto& name) { return value(name).has_value(); }))
    return;
  std::ranges::stable_sort(names, {}, value);
}

LabeledColumns columns_in(const DataConfig& config, bool requires_label = true) {
  const LabeledTextConfig& text = config.labeled_text();
  const Quotes quotes = !text.has_quoted_fields() ? Quotes::kLikely
                        : text.quoted_fields()    ? Quotes::kEnclose
                                                  : Quotes::kLiteral;
  return {text.text_column(), text.label_column(), quotes, requires_label};
}

// Classes by their names.
using ClassIds = std::unordered_map<std::string, int32_t>;

ClassIds ids_of(const std::vector<std::string>& names) {
  ClassIds ids;
  for (const std::string& name : names) ids.emplace(name, static_cast<int32_t>(ids.size()));
  return ids;
}

// Returns the names of the classes: the labels of the training texts, of which training needs two.
std::vector<std::string> read_classes(const DataConfig& config, const std::string& path,
                                      bool training) {
  BadRecordPolicy ignored(bad_record_limit(config));  // opening the training part reports them
  std::unordered_map<std::string, bool> found;
  read_labeled_records(path, columns_in(config), ignored,
                       [&](const LabeledRecord& record) { found.emplace(record.label, true); });
  std::vector<std::string> names;
  for (const auto& [name, unused] : found) names.push_back(name);
  sort_classes(names);
  ignored.check_not_empty(path, std::ssize(names));
  if (names.size() < 2 && training) {
    throw DataError(path, fmt::format("has only the label '{}'; there must be two", names[0]));
  }
  checked_classes(std::max<int64_t>(2, std::ssize(names)), "data.labeled_text.label_column");
  return names;
}

std::string path_of(const DataConfig& config, const std::string& name, const char* field) {
  if (name.empty()) {
    throw ConfigError(field,
                      "is missing; name a file *.csv, *.tsv or *.jsonl, or a folder with a "
                      "subfolder of *.txt files per class");
  }
  check_root(config.root());
  const std::string path = (fs::path(config.root()) / name).string();
  return fs::is_directory(path) ? path : find_file(config.root(), std::vector<std::string>{name});
}

// Appends the texts of a file or folder. `classes` is empty if labels are not required.
void encode_records(const DataConfig& config, const std::string& path,
                    const std::vector<std::string>& classes, const TextEncoder& encoder,
                    bool keeps_texts, TokenizedTexts& texts, BadRecordPolicy& policy) {
  const ClassIds ids = ids_of(classes);
  read_labeled_records(
      path, columns_in(config, !classes.empty()), policy, [&](const LabeledRecord& record) {
        const auto found = ids.find(record.label);
        if (!classes.empty() && found == ids.end()) {
          return policy.add(DataError(
              record.where,
              fmt::format("label '{}' is not one of the {} classes of the training "
                          "texts{}",
                          record.label, classes.size(), did_you_mean(record.label, classes))));
        }
        if (!encoder.append(record, classes.empty() ? 0 : found->second, texts)) {
          return policy.add(DataError(record.where, "the text has no tokens"));
        }
        if (keeps_texts) texts.texts.push_back(record.text);
      });
}

std::shared_ptr<const Tokenizer> tokenizer_of(const DataConfig& config) {
  if (!config.labeled_text().has_tokenizer()) {
    throw ConfigError("data.labeled_text.tokenizer",
                      "is missing; set bpe, wordpiece or sentencepiece");
  }
  return open_tokenizer(config.labeled_text().tokenizer(), config.root(),
                        "data.labeled_text.tokenizer");
}

}  // namespace

std::unique_ptr<Dataset> open_labeled_text(const DataConfig& config, Part part, Part files,
                                           uint64_t seed) {
  const LabeledTextConfig& options = config.labeled_text();
  const bool training = files == Part::kTraining;
  if (config.has_holdout() && options.has_eval()) {
    throw ConfigError("data.labeled_text.eval",
                      "cannot be combined with data.holdout, which replaces it");
  }
  const int64_t length = checked_length(options.length(), "data.labeled_text.length");
  const TextEncoder encoder(tokenizer_of(config), length);
  const std::string train_path = path_of(config, options.train(), "data.labeled_text.train");
  const std::string path =
      training ? train_path : path_of(config, options.eval(), "data.labeled_text.eval");
  std::unique_ptr<const TextAugmentation> augmentation;
  if (part == Part::kTraining && (options.has_synonyms() || options.has_token_dropout())) {
    augmentation =
        std::make_unique<const TextAugmentation>(config, encoder.tokenizer()->vocab_size(), seed);
  }
  std::vector<std::string> classes = read_classes(config, train_path, part == Part::kTraining);
  BadRecordPolicy policy(bad_record_limit(config));
  TokenizedTexts texts;
  encode_records(config, path, classes, encoder, augmentation && augmentation->needs_text(), texts,
                 policy);
  policy.check(path);
  policy.check_not_empty(path, texts.size());
  return std::make_unique<LabeledText>(path, encoder, std::move(texts), std::move(classes), length,
                                       policy.found(), std::move(augmentation));
}

std::unique_ptr<Dataset> open_unlabeled_texts(std::span<const std::string> paths,
                                              const DataConfig& config, const SampleSpec& spec) {
  const int64_t length = spec.input.shape[0];
  const TextEncoder encoder(tokenizer_of(config), length);
  BadRecordPolicy policy(kUnlimitedBadRecords);
  TokenizedTexts texts;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw DataError(path, "does not exist");
    encode_records(config, path, {}, encoder, /*keeps_texts=*/false, texts, policy);
  }
  const std::string source = paths.size() == 1 ? paths[0] : fmt::format("{} files", paths.size());
  policy.check_not_empty(source, texts.size());
  std::vector<std::string> classes(static_cast<size_t>(spec.classes));
  return std::make_unique<LabeledText>(source, encoder, std::move(texts), std::move(classes),
                                       length, policy.found());
}

}  // namespace trireme::data
