// Any file: plain, gzip, several members, damaged.
#include "data/files/file.h"
#include "tests/fuzz/fuzz.h"

using trireme::DataError;
using trireme::data::File;
using trireme::data::OnDamage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile bytes(trireme::fuzz::text_of(data, size));
  const trireme::data::File kept =
      trireme::data::read_file(bytes.path(), trireme::data::OnDamage::kKeepWhatCameBefore);
  bool whole = false;
  trireme::fuzz::refuse_with<trireme::DataError>([&] {
    const trireme::data::File file = trireme::data::read_file(bytes.path());
    whole = true;
    trireme::fuzz::require(file.bytes == kept.bytes, "a whole file is the same either way");
  });
  trireme::fuzz::require(whole == kept.damage.empty(), "damage is told either way");
  return 0;
}
