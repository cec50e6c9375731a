// A configuration file.
#include "trainer/config/config.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(trireme::fuzz::text_of(data, size));
  trireme::fuzz::accept_or_throw<trireme::ConfigError>([&] {
    const trireme::train::Config config = trireme::train::parse_config(text, "run.txtpb", {});
    const std::string resolved = trireme::train::to_text(config.run);
    const trireme::train::Config again = trireme::train::parse_config(resolved, "again.txtpb", {});
    trireme::fuzz::require(trireme::train::to_text(again.run) == resolved,
                           "a saved configuration can be read");
    trireme::fuzz::require(
        trireme::train::config_hash(again.run) == trireme::train::config_hash(config.run),
        "a saved configuration has the same hash");
  });
  return 0;
}
