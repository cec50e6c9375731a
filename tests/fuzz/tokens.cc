// The first character selects the kind of file and whether a vocabulary size is set; the rest is
// the file.
#include "tests/fuzz/samples.h"

using trireme::DataConfig;
using trireme::TokensConfig;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 40);
  TokensConfig& tokens = *config.mutable_tokens();
  tokens.add_train(file.name());
  tokens.set_length(3);
  tokens.set_kind(static_cast<TokensConfig::Kind>(data[0] % 3));
  if (data[0] / 3 % 2 == 1) tokens.set_vocab_size(300);
  trireme::fuzz::open_with_both_policies(config, trireme::data::Part::kTraining);
  return 0;
}
