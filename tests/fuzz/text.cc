// The first character selects characters or bytes, and whether the rest is the training text or an
// evaluation text with the vocabulary of another one.
#include "tests/fuzz/samples.h"

using trireme::DataConfig;
using trireme::TextConfig;
using trireme::data::Part;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  const MemoryFile other("abcde fgh\n\xc3\xa4\xe2\x82\xac");
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 40);
  TextConfig& text = *config.mutable_text();
  const bool training = data[0] % 2 == 0;
  text.set_train_file(training ? file.name() : other.name());
  if (!training) text.set_eval_file(file.name());
  text.set_length(3);
  text.set_vocabulary(data[0] / 2 % 2 == 0 ? TextConfig::CHARACTERS : TextConfig::BYTES);
  trireme::fuzz::open_with_both_policies(config, training ? Part::kTraining : Part::kEvaluation);
  return 0;
}
