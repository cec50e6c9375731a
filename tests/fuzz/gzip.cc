// A file: plain, gzip, with several members, or damaged.
#include "data/files/file.h"
#include "tests/fuzz/fuzz.h"

using trireme::DataError;
using trireme::data::File;
using trireme::data::OnDamage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const trireme::fuzz::MemoryFile bytes(trireme::fuzz::text_of(data, size));
  const File tolerant = trireme::data::read_file(bytes.path(), OnDamage::kReadUpToDamage);
  bool intact = false;
  trireme::fuzz::accept_or_throw<DataError>([&] {
    const File file = trireme::data::read_file(bytes.path());
    intact = true;
    trireme::fuzz::require(file.bytes == tolerant.bytes,
                           "an intact file has the same bytes in both modes");
  });
  trireme::fuzz::require(intact == tolerant.damage.empty(), "both modes detect damage");
  return 0;
}
