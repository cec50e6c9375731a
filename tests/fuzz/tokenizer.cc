// The first character selects the kind of tokenizer. The rest is its files and a text, separated by
// bytes of 0.
#include "data/tokenizers/tokenizer.h"

#include <array>

#include "tests/fuzz/fuzz.h"

using trireme::TokenizerConfig;
using trireme::data::Tokenizer;
using trireme::fuzz::MemoryFile;
using trireme::fuzz::require;

namespace {

void encode(const Tokenizer& tokenizer, std::string_view text, bool lossless) {
  trireme::fuzz::accept_or_throw<trireme::Error>([&] {
    const std::vector<int32_t> tokens = tokenizer.encode(text);
    for (const int32_t token : tokens) {
      require(token >= 0 && token < tokenizer.vocab_size(), "tokens are in the vocabulary");
    }
    const std::string decoded = tokenizer.decode(tokens);
    require(!lossless || decoded == text, "BPE decodes what it has encoded");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view rest = trireme::fuzz::text_of(data + 1, size - 1);
  std::array<std::string_view, 3> parts;
  for (std::string_view& part : parts) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const MemoryFile first(parts[0]), second(parts[1]);
  TokenizerConfig config;
  const bool bpe = data[0] % 2 == 0;
  if (bpe) {
    config.mutable_bpe()->set_vocab(first.name());
    config.mutable_bpe()->set_merges(second.name());
  } else {
    config.mutable_wordpiece()->set_vocab(first.name());
    config.mutable_wordpiece()->set_lowercase(data[0] / 2 % 2 == 0);
    config.mutable_wordpiece()->set_strip_accents(data[0] / 4 % 2 == 0);
  }
  trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
    const auto tokenizer = trireme::data::open_tokenizer(config, MemoryFile::kFolder, "tokenizer");
    encode(*tokenizer, bpe ? parts[2] : parts[1], bpe);
  });
  return 0;
}
