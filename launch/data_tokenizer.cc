// `trireme data tokenizer`: trains a tokenizer of SentencePiece.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "data/files/file.h"
#include "data/tokenizers/tokenizer.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/message.h"
#include "launch/output_file.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct DataTokenizerOptions {
  std::vector<std::string> files;
  int64_t vocab_size = 8000;
  std::string type = "unigram";
  std::string out = "tokenizer.model";
};

// SentencePiece ignores longer lines; they are trained on in parts.
constexpr size_t kMaxLine = 1 << 16;

std::string read_utf8(const std::string& path) {
  const data::File file = data::read_file(path);
  std::string text(file.bytes.begin(), file.bytes.end());
  try {
    data::check_utf8(text);
  } catch (const Error& error) {
    throw DataError(path, error.what());
  }
  return text;
}

// The lines of several files, which are read one after another.
class Lines {
 public:
  explicit Lines(const std::vector<std::string>& files) : files_(files) {}

  // Sets the next line. Returns false at the end of the last file.
  bool next(std::string& line) {
    while (at_ >= text_.size()) {
      if (file_ == files_.size()) return false;
      text_ = read_utf8(files_[file_++]);
      at_ = 0;
    }
    size_t end = std::min({text_.find('\n', at_), at_ + kMaxLine, text_.size()});
    while (end < text_.size() && is_continuation(text_[end])) --end;
    line = text_.substr(at_, end - at_);
    at_ = end + (end < text_.size() && text_[end] == '\n' ? 1 : 0);
    return true;
  }

 private:
  static bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

  const std::vector<std::string>& files_;
  size_t file_ = 0;  // the next one
  std::string text_;
  size_t at_ = 0;
};

// Returns the mean number of bytes per token in the first MiB of a file.
double bytes_per_token(const data::Tokenizer& tokenizer, const std::string& path) {
  constexpr size_t kBytes = 1 << 20;
  std::string text = read_utf8(path);
  const size_t end = std::min(text.find('\n', kBytes), text.size());  // of a line
  text.resize(end);
  return static_cast<double>(end) /
         static_cast<double>(std::max<size_t>(1, tokenizer.encode(text).size()));
}

// Returns whether data.labeled_text reads the file.
bool is_table(const std::string& file) {
  constexpr const char* kEndings[] = {".csv", ".tsv", ".jsonl"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return file.ends_with(ending); });
}

int train(const DataTokenizerOptions& options) {
  for (const std::string& file : options.files) require_another_file(options.out, file);
  NewFile out(options.out);  // an error should not wait until the training is done
  Lines lines(options.files);
  const std::string model = data::train_sentencepiece(
      options.vocab_size, options.type, [&](std::string& line) { return lines.next(line); });
  out.write(model);
  out.finish();
  TokenizerConfig config;
  const fs::path path(options.out);
  config.mutable_sentencepiece()->set_model(path.filename().string());
  const std::string folder = path.parent_path().empty() ? "." : path.parent_path().string();
  const auto tokenizer = data::open_tokenizer(config, folder, "--out");
  print_message("{}: {}, {:.2f} bytes of {} per token\n\n", options.out, tokenizer->description(),
                bytes_per_token(*tokenizer, options.files[0]), options.files[0]);
  const std::string file = fs::absolute(options.files[0]).string();
  print_message(
      "data {{\n  {}: \"{}\"\n    tokenizer {{ sentencepiece {{ model: \"{}\" }} }}\n  }}\n  "
      "holdout: 0.1\n}}\n",
      is_table(file) ? "labeled_text {\n    train" : "text {\n    train_file", file,
      fs::absolute(path).string());
  return 0;
}

}  // namespace

void add_data_tokenizer(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataTokenizerOptions>();
  ArgumentParser command =
      data.add_command("tokenizer",
                       "Train a SentencePiece tokenizer on texts\nThe model is for data.text, "
                       "data.tokens and data.labeled_text. It preserves texts: characters that it "
                       "does not know become bytes.");
  command.add_option("FILE", options->files, "Text (UTF-8), which may be compressed with gzip")
      .required();
  command.add_option("--vocab", options->vocab_size, "Number of tokens")
      .between(300, 1 << 24)
      .metavar("N")
      .show_default();
  command.add_option("--type", options->type, "Kind of model")
      .one_of({"unigram", "bpe"})
      .show_default();
  command.add_option("-o,--out", options->out, "Model to write").show_default();
  command.epilog(R"(Examples:
  trireme data tokenizer --vocab 8000 corpus.txt
  trireme data tokenizer --vocab 32000 --type bpe -o en-de.model en.txt de.txt
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return train(*options); }); });
}

}  // namespace trireme::cli
