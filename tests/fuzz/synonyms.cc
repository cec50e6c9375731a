// The input up to the first zero byte is a file of synonyms; the rest is a text, of which words are
// replaced.
#include "data/formats/synonyms.h"

#include <algorithm>

#include "data/tokenizers/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using trireme::Random;
using trireme::RandomPurpose;
using trireme::fuzz::MemoryFile;
using trireme::fuzz::require;

namespace {

bool is_utf8(std::string_view text) {
  try {
    trireme::data::check_utf8(text);
  } catch (const trireme::Error&) {
    return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = trireme::fuzz::text_of(data, size);
  const size_t end = std::min(input.find('\0'), input.size());
  const MemoryFile file(input.substr(0, end));
  const std::string text(input.substr(std::min(end + 1, input.size())));
  trireme::SynonymsConfig config;
  config.add_file(file.name());
  config.set_probability(1);
  trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
    const trireme::data::Synonyms synonyms(config, MemoryFile::kFolder);
    if (!is_utf8(text)) return;  // readers of texts reject it
    const Random random(1, RandomPurpose::kSynthetic);
    std::string once = text, again = text;
    const bool replaced = synonyms.replace(once, random, 7);
    require(synonyms.replace(again, random, 7) == replaced && once == again,
            "the same words are replaced by the same ones");
    require(replaced || once == text, "a text without synonyms stays the same");
    require(is_utf8(once), "the text stays UTF-8");
  });
  return 0;
}
