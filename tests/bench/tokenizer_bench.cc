// Measures the speed of the tokenizers on the text that tests/golden/make_tokenizers.py --full
// writes, which prints the speed of Hugging Face's.
//
//   tokenizer_bench FOLDER
//
// Prints MB of text per second of CPU time for the whole text and for its lines, the best of three.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "data/tokenizers/tokenizer.h"

namespace trireme::bench {
namespace {

constexpr int kRepetitions = 3;

// Returns the least CPU time, in seconds, that `work` takes.
template <class Work>
double cpu_seconds(Work work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    const std::clock_t began = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC);
  }
  return best;
}

void encode_lines(const data::Tokenizer& tokenizer, std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    tokenizer.encode(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void measure(const std::string& folder) {
  const std::string text = read_text(folder + "/text.txt");
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  TokenizerConfig bpe, uncased, cased;
  bpe.mutable_bpe();
  uncased.mutable_wordpiece();
  cased.mutable_wordpiece()->set_lowercase(false);
  const std::pair<const char*, const TokenizerConfig*> all[] = {
      {"bpe", &bpe}, {"wordpiece", &uncased}, {"wordpiece-cased", &cased}};
  for (const auto& [name, config] : all) {
    const auto tokenizer = data::open_tokenizer(*config, folder + "/" + name, name);
    const double whole = cpu_seconds([&] { tokenizer->encode(text); });
    const double lines = cpu_seconds([&] { encode_lines(*tokenizer, text); });
    fmt::print("{}: {:.2f} MB/s as one text, {:.2f} MB/s by lines\n", name, megabytes / whole,
               megabytes / lines);
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: tokenizer_bench FOLDER\n");
    return 2;
  }
  try {
    trireme::bench::measure(arguments[1]);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "tokenizer_bench: {}\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
