// `trireme generate`: continues prompts with a trained language model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/token_text.h"
#include "data/tokenizers/tokenizer.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "launch/output_file.h"
#include "trainer/base/json.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/infer/generator.h"
#include "trainer/infer/trained_model.h"
#include "trainer/report/sample_info.h"

namespace trireme::cli {
namespace {

struct GenerateOptions : ConfigOptions, CheckpointOptions {
  std::vector<std::string> prompts;
  std::string prompt_file;
  int64_t max_tokens = 200;
  train::Sampling sampling;
  std::vector<std::string> stops;
  bool no_special = false;
  int64_t batch = 8;
  int threads = 0;
  std::string format = "text";
  std::string out;
};

// Prompts and results as text: that of the run's tokenizer, characters or bytes if the run was
// trained on text, otherwise the numbers of the tokens.
class Vocabulary {
 public:
  // With `special`, names of special tokens in prompts stand for these.
  Vocabulary(const train::SampleInfo& info, const model::Graph& graph, bool special)
      : size_(info.spec.classes), tokenizer_(info.tokenizer), special_(special) {
    if (!tokenizer_ && !info.class_names.empty()) text_.emplace(info.class_names);
    if (tokenizer_) ends_.insert(tokenizer_->special().end);
    for (const model::Node& node : graph.nodes) {
      for (const auto& [field, token] : node.layer->token_fields()) {
        if (token && field.ends_with(".document_end")) ends_.insert(*token);
      }
    }
  }

  std::vector<int32_t> encode(const std::string& prompt) const {
    const std::vector<int32_t> tokens = tokenizer_ ? encode_text(prompt)
                                        : text_    ? text_->encode(prompt)
                                                   : parse(prompt);
    if (tokens.empty()) throw Error("is empty; it must have at least one token");
    return tokens;
  }
  // Returns whether the token ends a text.
  bool is_end(int32_t token) const { return ends_.contains(token); }
  std::string decode(int32_t token) const {
    if (tokenizer_) return tokenizer_->text_of(token);
    return text_ ? text_->text_of(token) : fmt::format(" {}", token);
  }

 private:
  std::vector<int32_t> encode_text(const std::string& prompt) const {
    return special_ ? tokenizer_->encode_with_special(prompt) : tokenizer_->encode(prompt);
  }
  std::vector<int32_t> parse(const std::string& prompt) const {
    std::vector<int32_t> tokens;
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      int32_t token = -1;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size() || token < 0 || token >= size_) {
        throw Error(
            fmt::format("'{}' is not a token: an integer in [0, {})", printable(word), size_));
      }
      tokens.push_back(token);
    }
    return tokens;
  }

  int64_t size_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  bool special_;
  std::optional<data::TokenText> text_;
  std::set<int32_t> ends_;
};

// A prompt and its continuation.
struct Text {
  std::string prompt;
  std::vector<int32_t> tokens = {};  // of both
  size_t prompt_tokens = 0;
  std::string continuation = {};
  std::vector<size_t> ends = {};        // of the generated tokens in the continuation
  const char* finish_reason = nullptr;  // null while tokens are being generated
};

// Returns the content of a file or a pipe.
std::string read_prompt_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    throw DataError(path, "is a folder; name a file with one prompt per line");
  }
  constexpr size_t kMaxBytes = size_t{64} << 20;  // a pipe may have no end
  std::ifstream file(path);
  std::string text;
  std::array<char, 65536> block;
  while (file.read(block.data(), block.size()), file.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxBytes) throw DataError(path, "is larger than 64 MiB; use several files");
  }
  if (!file.eof()) throw DataError(path, "cannot be read");
  return text;
}

std::vector<std::string> read_prompts(const GenerateOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  if (!options.prompt_file.empty()) {
    std::istringstream file(read_prompt_file(options.prompt_file));
    for (std::string line; std::getline(file, line);) {
      if (line.ends_with('\r')) line.pop_back();
      prompts.push_back(std::move(line));
    }
  }
  if (prompts.empty()) {
    throw ConfigError("--prompt", options.prompt_file.empty()
                                      ? "is missing; give it, or a file with --prompts"
                                      : "is missing, and " + options.prompt_file + " has no lines");
  }
  return prompts;
}

std::vector<Text> encode(const std::vector<std::string>& prompts, const Vocabulary& vocabulary) {
  std::vector<Text> texts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Text text{.prompt = prompts[i]};
    try {
      text.tokens = vocabulary.encode(prompts[i]);
      text.prompt_tokens = text.tokens.size();
    } catch (const Error& error) {
      throw DataError(fmt::format("prompt {}", i + 1), error.what());
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

// Returns the samples that the network reads: those of training or, if it reads any length, longer
// ones for the texts and their continuations. As the states after all tokens of `rows` texts are
// kept, their number is limited. Lengths are powers of two: a GPU is tuned for each.
data::SampleSpec samples_for(const std::vector<Text>& texts, const model::Graph& graph,
                             data::SampleSpec samples, int64_t rows, int64_t max_tokens) {
  constexpr int64_t kMaxTokens = 16384;
  if (!train::reads_any_length(graph)) return samples;
  int64_t longest = 0;
  for (const Text& text : texts) longest = std::max(longest, std::ssize(text.tokens) + max_tokens);
  const uint64_t length = std::min(std::bit_ceil(static_cast<uint64_t>(longest)),
                                   std::bit_floor(static_cast<uint64_t>(kMaxTokens / rows)));
  if (std::cmp_less_equal(length, samples.input.shape[0])) return samples;
  samples.input.shape = Shape{static_cast<int64_t>(length)};
  samples.target.shape = samples.input.shape;
  return samples;
}

// Throws DataError if a prompt is too long.
void check_lengths(const std::vector<Text>& texts, int64_t length) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (std::ssize(texts[i].tokens) <= length) continue;
    throw DataError(fmt::format("prompt {}", i + 1),
                    fmt::format("has {} tokens, but the network reads at most {}",
                                texts[i].prompt_tokens, length));
  }
}

// Ends the text before byte `end` of its continuation, and removes the tokens that reach beyond.
void end_before(Text& text, size_t end) {
  text.continuation.resize(end);
  while (!text.ends.empty() && text.ends.back() > end) {
    text.ends.pop_back();
    text.tokens.pop_back();
  }
  text.finish_reason = "stop";
}

// Adds a token to the text, and checks whether the text is complete.
void append(Text& text, int32_t token, const Vocabulary& vocabulary,
            const GenerateOptions& options) {
  const size_t size = text.continuation.size();
  if (vocabulary.is_end(token)) return end_before(text, size);
  text.tokens.push_back(token);
  text.continuation += vocabulary.decode(token);
  text.ends.push_back(text.continuation.size());
  size_t end = std::string::npos;
  for (const std::string& stop : options.stops) {
    // It does not end before `size`.
    const size_t begin = size - std::min(size, stop.size() - 1);
    end = std::min(end, text.continuation.find(stop, begin));
  }
  if (end != std::string::npos) {
    end_before(text, end);
  } else if (std::ssize(text.tokens) >=
             static_cast<int64_t>(text.prompt_tokens) + options.max_tokens) {
    text.finish_reason = "length";
  }
}

// Writes a single text while it is being generated.
class Stream {
 public:
  Stream(OutputFile& file, const GenerateOptions& options) : file_(file) {
    for (const std::string& stop : options.stops) held_ = std::max(held_, stop.size() - 1);
  }
  // Text that may be the beginning of a stop string is held back.
  void write(const Text& text) {
    const size_t end = text.finish_reason
                           ? text.continuation.size()
                           : text.continuation.size() - std::min(held_, text.continuation.size());
    if (end <= written_) return;
    file_.write(text.continuation.substr(written_, end - written_));
    file_.flush();
    written_ = end;
  }

 private:
  OutputFile& file_;
  size_t held_ = 0;
  size_t written_ = 0;
};

std::string jsonl(const Text& text) {
  nlohmann::json line = {
      {"prompt", text.prompt}, {"text", text.continuation}, {"finish_reason", text.finish_reason}};
  const auto begin = text.tokens.begin() + static_cast<int64_t>(text.prompt_tokens);
  line["tokens"] = std::vector<int32_t>(begin, text.tokens.end());
  return train::json_text(std::move(line)) + "\n";
}

std::string formatted(const Text& text, const std::string& format) {
  if (format == "jsonl") return jsonl(text);
  return fmt::format("{}{}\n----\n", text.prompt, text.continuation);
}

// Continues the texts, as many at a time as the generator has rows. Calls extended(text) after each
// token, and finished(text) in the order of the texts.
template <class Extended, class Finished>
void continue_texts(std::vector<Text>& texts, train::Generator& generator, int64_t rows,
                    const Vocabulary& vocabulary, const GenerateOptions& options, Extended extended,
                    Finished finished) {
  std::vector<Text*> text_of(static_cast<size_t>(rows));
  size_t begun = 0, reported = 0;
  while (reported < texts.size()) {
    for (int64_t row = 0; row < rows && begun < texts.size(); ++row) {
      Text*& text = text_of[static_cast<size_t>(row)];
      if (text) continue;
      text = &texts[begun];
      generator.begin(row, text->tokens, begun++);
    }
    generator.extend(options.sampling);
    for (int64_t row = 0; row < rows; ++row) {
      Text*& text = text_of[static_cast<size_t>(row)];
      if (!text) continue;
      append(*text, generator.tokens(row).back(), vocabulary, options);
      extended(*text);
      if (!text->finish_reason) continue;
      generator.end(row);
      text = nullptr;
    }
    for (; reported < texts.size() && texts[reported].finish_reason; ++reported) {
      finished(texts[reported]);
    }
  }
}

train::TrainedRun find(const GenerateOptions& options) {
  std::vector<std::string> assignments = options.all_assignments();
  if (options.threads > 0) assignments.push_back(fmt::format("train.threads={}", options.threads));
  return train::find_trained_run(options.checkpoint(), assignments, train::warn_on_stderr);
}

int generate(const GenerateOptions& options) {
  require_another_file(options.out, options.prompt_file);
  const train::TrainedRun run = find(options);
  require_another_file(options.out, run.folder);
  const train::Config& config = run.config;
  require_another_file(options.out, config.run);
  const train::SampleInfo info = train::samples_of(run);
  const std::vector<std::string> prompts = read_prompts(options);
  const auto alone = comm::create_local_communicator();
  const auto device = train::create_device(config, *alone);
  const auto backend = train::create_backend(config, *device);
  const int64_t rows = std::min(options.batch, std::ssize(prompts));
  const model::Graph graph = train::build_network(config, info.spec);
  train::require_language_model(graph);
  const Vocabulary vocabulary(info, graph, !options.no_special);
  std::vector<Text> texts = encode(prompts, vocabulary);
  const train::TrainedModel model(config, *backend,
                                  samples_for(texts, graph, info.spec, rows, options.max_tokens),
                                  run.checkpoint, rows, train::BatchNormMode::kFolded);
  train::Generator generator(model, *backend, rows);
  check_lengths(texts, generator.length());

  OutputFile file(options.out);
  if (texts.size() == 1 && options.format == "text") {
    Stream stream(file, options);
    file.write(texts[0].prompt);
    continue_texts(
        texts, generator, rows, vocabulary, options, [&](const Text& text) { stream.write(text); },
        [&](const Text&) { file.write("\n"); });
  } else {
    continue_texts(
        texts, generator, rows, vocabulary, options, [](const Text&) {},
        [&](const Text& text) { file.write(formatted(text, options.format)); });
  }
  file.finish();
  return static_cast<int>(ExitCode::kDone);
}

std::string not_empty(const std::string& text) {
  return text.empty() ? "must not be empty" : std::string();
}

}  // namespace

void add_generate(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<GenerateOptions>();
  ArgumentParser command = app.add_command("generate", "Continue text with a language model");
  options->add_path(command);
  command
      .add_option("--prompt", options->prompts,
                  "Text to continue; for runs on data.tokens without a vocab_file, token ids "
                  "separated by spaces. May be repeated")
      .one_value_each();
  command.add_option("--prompts", options->prompt_file, "File with one prompt per line")
      .metavar("FILE");
  command.add_option("--max-tokens", options->max_tokens, "Tokens to generate for each prompt")
      .between(1, 1 << 30)
      .show_default();
  command
      .add_option("--temperature", options->sampling.temperature,
                  "Divides the logits; 0 takes the most probable token")
      .not_negative()
      .show_default();
  command
      .add_option("--top-k", options->sampling.top_k,
                  "Draw from the K most probable tokens only (0: all)")
      .not_negative()
      .show_default();
  command
      .add_option("--top-p", options->sampling.top_p,
                  "Draw from the most probable tokens whose probabilities add up to P")
      .between(0, 1)
      .show_default();
  command.add_option("--seed", options->sampling.seed, "Seed of the random numbers").show_default();
  command
      .add_option("--stop", options->stops,
                  "End a text before this string occurs in its continuation. May be repeated")
      .one_value_each()
      .check(not_empty);
  command.add_flag("--no-special", options->no_special,
                   "Take names of special tokens in prompts, such as <|endoftext|>, as text");
  command.add_option("--format", options->format, "Output format")
      .one_of({"text", "jsonl"})
      .show_default();
  command.add_option("-o,--out", options->out, "Output file (default, and -: standard output)");
  command.add_option("--batch", options->batch, "Prompts to continue at the same time")
      .between(1, 1 << 20)
      .show_default();
  command.add_option("--threads", options->threads, "Number of threads (default: all cores)")
      .between(1, 1024);
  options->add_best(command);
  options->add_to(command);
  command.epilog(R"(Examples:
  trireme generate runs/shakespeare --prompt "ROMEO:" --max-tokens 500
  trireme generate runs/shakespeare --prompts names.txt --format jsonl
  trireme generate runs/gpt2 --prompt "464 2068 7586" --temperature 0

A text ends before the token that ends a text of the run's tokenizer, such as
<|endoftext|> or </s>, before model.zoo.document_end (or that of a layer), and
before a --stop string; the "finish_reason" of JSON is then "stop", and "tokens"
has the tokens before that end. In prompts, names of special tokens stand for
these: <|endoftext|>, <|im_start|> and others in brackets that no merge makes
(BPE), [CLS] and [SEP] (WordPiece), <s> and </s> (SentencePiece). With
--no-special, they are text, as in training texts.

A single prompt is continued on the terminal token by token. The random numbers
depend on the seed, the number of the prompt and the position, but not on
--batch. A text that becomes longer than the training samples is continued from
its last tokens, half as many as a sample has; networks without attention and
positions, such as LSTMs, read up to 16,384 tokens of all texts of a batch.)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return generate(*options); }); });
}

}  // namespace trireme::cli
