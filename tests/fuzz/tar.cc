// A tar shard: indexes it and reads all records. Bits of the first byte select whether labels are
// in .json, and whether to fix the checksums of the headers.
#include <cstring>

#include "data/formats/formats.h"
#include "tests/fuzz/fuzz.h"

using namespace trireme;

namespace {

void correct_sums(std::string& bytes) {
  constexpr size_t kBlock = 512;
  constexpr size_t kSumAt = 148;
  for (size_t begin = 0; begin + kBlock <= bytes.size(); begin += kBlock) {
    char* const header = bytes.data() + begin;
    if (std::memcmp(header + 257, "ustar", 5) != 0) continue;
    std::memset(header + kSumAt, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(header[i]);
    std::snprintf(header + kSumAt, 8, "%06o", sum);
  }
}

void read_all(const trireme::data::Records& records) {
  trireme::fuzz::require(records.size() >= 1, "a shard has a record");
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < records.size(); ++i) {
    records.read(i, bytes);  // only complete images are indexed
    trireme::fuzz::require(!bytes.empty() && !records.where(i).empty(), "records are not empty");
    trireme::fuzz::require(records.label(i) >= 0 && records.label(i) < records.classes(),
                           "labels are valid classes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(trireme::fuzz::text_of(data + 1, size - 1));
  if (data[0] & 2) correct_sums(bytes);
  const trireme::fuzz::MemoryFile shard(bytes);
  trireme::DataConfig config;
  config.set_root(trireme::fuzz::MemoryFile::kFolder);
  config.set_max_bad_records(int64_t{1} << 40);
  config.mutable_webdataset()->add_train(shard.name());
  config.mutable_webdataset()->set_classes(10);
  config.mutable_webdataset()->set_index_folder("/proc/none");  // in memory
  if (data[0] & 1) config.mutable_webdataset()->set_json_label("a.b");
  int64_t size_with_fail = -1;
  trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
    const auto records = trireme::data::open_webdataset(config, trireme::data::Part::kTraining, {});
    read_all(*records);
    trireme::fuzz::require(records->bad_records().count == 0, "FAIL skips no records");
    size_with_fail = records->size();
  });
  config.set_on_bad_record(trireme::DataConfig::SKIP);
  int64_t size_with_skip = -1;
  trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
    const auto records = trireme::data::open_webdataset(config, trireme::data::Part::kTraining, {});
    read_all(*records);
    trireme::fuzz::require((size_with_fail >= 0) == (records->bad_records().count == 0),
                           "bad records are counted");
    size_with_skip = records->size();
  });
  trireme::fuzz::require(size_with_fail < 0 || size_with_skip == size_with_fail,
                         "SKIP accepts what FAIL accepts");
  return 0;
}
