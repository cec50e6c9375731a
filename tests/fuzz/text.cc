// The first character says how the rest is to be read: as characters or bytes, and whether it is
// training text or is to be put into the vocabulary of another one.
#include "tests/fuzz/samples.h"

using trireme::DataConfig;
using trireme::TextConfig;
using trireme::data::Part;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const trireme::fuzz::MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  const trireme::fuzz::MemoryFile other("abcde fgh\n\xc3\xa4\xe2\x82\xac");
  trireme::DataConfig config;
  config.set_root(trireme::fuzz::MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 40);
  TextConfig& text = *config.mutable_text();
  const bool training = data[0] % 2 == 0;
  text.set_train_file(training ? file.name() : other.name());
  if (!training) text.set_eval_file(file.name());
  text.set_length(3);
  text.set_vocabulary(data[0] / 2 % 2 == 0 ? TextConfig::CHARACTERS : TextConfig::BYTES);
  trireme::fuzz::open_both_ways(
      config, training ? trireme::data::Part::kTraining : trireme::data::Part::kEvaluation);
  return 0;
}
