// The index of a shard of 4096 bytes, read as it is and with a fixed checksum.
#define XXH_INLINE_ALL
#include "data/formats/tar_index.h"

#include <xxhash.h>

#include <cstring>

#include "tests/fuzz/fuzz.h"

using namespace trireme;

namespace {

constexpr size_t kChecksumAt = 8;
constexpr size_t kHashedFrom = 16;
constexpr size_t kStampBytes = sizeof(data::TarStamp);

void read_all(std::vector<uint8_t> bytes, const trireme::data::TarStamp& stamp) {
  const auto index = trireme::data::TarIndex::read(std::move(bytes), stamp);
  if (!index) return;
  size_t sum = 0;
  for (size_t i = 0; i < index->samples().size(); ++i) {
    const trireme::data::TarSample& sample = index->samples()[i];
    trireme::fuzz::require(sample.offset + sample.size <= stamp.bytes,
                           "images are within the shard");
    trireme::fuzz::require(sample.label >= 0 && sample.label <= index->largest_label(),
                           "labels are in range");
    for (const char c : index->name(i)) sum += static_cast<unsigned char>(c);
  }
  for (const trireme::data::TarProblem& problem : index->problems()) sum += problem.what.size();
  trireme::fuzz::require(sum < size_t{1} << 40, "names can be read");
  trireme::fuzz::require(index->problem_count() >= std::ssize(index->problems()),
                         "problems are counted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  trireme::data::TarStamp stamp;
  stamp.bytes = 4096;
  read_all(bytes, stamp);
  if (size < kHashedFrom + kStampBytes) return 0;
  std::memcpy(bytes.data() + kHashedFrom, &stamp, kStampBytes);
  const uint64_t sum = XXH3_64bits(bytes.data() + kHashedFrom, bytes.size() - kHashedFrom);
  std::memcpy(bytes.data() + kChecksumAt, &sum, sizeof sum);
  read_all(std::move(bytes), stamp);
  return 0;
}
