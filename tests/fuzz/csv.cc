// The first character, a letter, selects the options: header, delimiter, regression, classes. The
// rest is a CSV file.
#include "tests/fuzz/samples.h"

using trireme::CsvConfig;
using trireme::DataConfig;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto choice = static_cast<unsigned>(data[0] - 'a');
  const MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  CsvConfig& csv = *config.mutable_csv();
  csv.set_train_file(file.name());
  csv.set_header(static_cast<CsvConfig::Header>(choice % 3));
  csv.set_delimiter(choice / 3 % 2 == 0 ? "," : ";");
  csv.set_regression(choice / 6 % 2 == 1);
  if (choice / 12 % 2 == 1 && !csv.regression()) csv.set_classes(3);
  // ConfigError is valid, since the file may have no feature columns.
  trireme::fuzz::accept_or_throw<trireme::ConfigError>(
      [&] { trireme::fuzz::open_with_both_policies(config, trireme::data::Part::kTraining); });
  return 0;
}
