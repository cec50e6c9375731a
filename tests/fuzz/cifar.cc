// The first byte selects the variant; the rest is a CIFAR file.
#include "tests/fuzz/samples.h"

using trireme::CifarConfig;
using trireme::DataConfig;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  config.mutable_cifar()->set_variant(static_cast<CifarConfig::Variant>(data[0] % 3));
  config.mutable_cifar()->add_train_file(file.name());
  trireme::fuzz::open_with_both_policies(config, trireme::data::Part::kTraining);
  return 0;
}
