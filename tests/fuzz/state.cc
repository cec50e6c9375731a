// state.json of a checkpoint.
#include "tests/fuzz/fuzz.h"
#include "trainer/checkpoint/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(trireme::fuzz::text_of(data, size));
  trireme::fuzz::accept_or_throw<trireme::ConfigError>([&] {  // for a newer format
    trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
      const std::string written =
          trireme::train::to_json(trireme::train::state_from_json(text, "state.json"));
      const std::string again =
          trireme::train::to_json(trireme::train::state_from_json(written, "again.json"));
      trireme::fuzz::require(again == written, "a saved state can be read");
    });
  });
  return 0;
}
