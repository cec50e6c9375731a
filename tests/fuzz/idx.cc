// The first byte selects which of the two files the rest is. The other one is valid.
#include "tests/fuzz/samples.h"

using trireme::DataConfig;
using trireme::data::Part;
using trireme::fuzz::MemoryFile;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = trireme::fuzz::text_of(data + 1, size - 1);
  const std::string images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40};
  const std::string labels{0, 0, 8, 1, 0, 0, 0, 2, 7, 9};
  const bool is_images = data[0] % 2 == 0;
  const MemoryFile image_file(is_images ? bytes : images);
  const MemoryFile label_file(is_images ? labels : bytes);
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 40);
  config.mutable_idx()->set_train_images(image_file.name());
  config.mutable_idx()->set_train_labels(label_file.name());
  trireme::fuzz::open_with_both_policies(config, Part::kTraining);
  return 0;
}
