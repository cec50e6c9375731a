// A message of the watchdog between hosts.
#include "comm/watchdog/message.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  auto message = trireme::comm::decode(bytes);
  if (!message) return 0;
  trireme::fuzz::require(std::ranges::equal(trireme::comm::encode(*message), bytes),
                         "a message has only one encoding");
  trireme::comm::convert_times(*message, int64_t{1} << 40);
  return 0;
}
