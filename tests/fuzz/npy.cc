// The first byte selects which of the two files the rest is. The other one is valid.
#include "data/formats/npy_array.h"
#include "tests/fuzz/samples.h"

using trireme::DataConfig;
using trireme::DType;
using trireme::fuzz::MemoryFile;

namespace {

std::string good(DType dtype, const std::vector<int64_t>& shape, size_t bytes) {
  const std::vector<uint8_t> elements(bytes, 1);
  const std::vector<uint8_t> file = trireme::data::encode_npy(dtype, shape, elements);
  return {file.begin(), file.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = trireme::fuzz::text_of(data + 1, size - 1);
  const bool is_inputs = data[0] % 2 == 0;
  const std::string other =
      is_inputs ? good(DType::kU8, {2}, 2) : good(DType::kU8, {2, 1, 2, 3}, 12);
  const MemoryFile inputs(is_inputs ? bytes : other);
  const MemoryFile targets(is_inputs ? other : bytes);
  DataConfig config;
  config.set_root(MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 62);
  config.mutable_npy()->set_train_inputs(inputs.name());
  config.mutable_npy()->set_train_targets(targets.name());
  trireme::fuzz::open_with_both_policies(config, trireme::data::Part::kTraining);
  return 0;
}
