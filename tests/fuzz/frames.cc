// A stream of frames, in pieces whose size the first byte says, makes the messages that it makes
// as a whole.
#include "comm/watchdog/frames.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace {

std::vector<std::vector<std::byte>> messages_of(std::span<const std::byte> bytes, size_t piece,
                                                bool& good) {
  trireme::comm::FrameReader reader;
  std::vector<std::vector<std::byte>> messages;
  good = true;
  for (size_t at = 0; at < bytes.size() && good; at += piece) {
    good = reader.read(bytes.subspan(at, std::min(piece, bytes.size() - at)),
                       [&](std::span<const std::byte> message) {
                         messages.emplace_back(message.begin(), message.end());
                       });
  }
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  bool whole_good = false;
  bool cut_good = false;
  const auto whole = messages_of(bytes, size, whole_good);
  const auto cut = messages_of(bytes, size_t{data[0]} + 1, cut_good);
  trireme::fuzz::require(whole == cut, "pieces do not matter");
  trireme::fuzz::require(whole_good == cut_good, "what is refused is refused in any pieces");
  for (const auto& message : whole) {
    const auto frame = trireme::comm::make_frame(message);
    trireme::fuzz::require(
        std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end()) != bytes.end(),
        "a message was in the stream");
  }
  return 0;
}
