// A stream of frames yields the same messages in one piece and in pieces of the size given by the
// first byte.
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
  bool good = false;
  bool good_in_pieces = false;
  const auto messages = messages_of(bytes, size, good);
  const auto from_pieces = messages_of(bytes, size_t{data[0]} + 1, good_in_pieces);
  trireme::fuzz::require(messages == from_pieces, "messages do not depend on pieces");
  trireme::fuzz::require(good == good_in_pieces, "errors do not depend on pieces");
  for (const auto& message : messages) {
    const auto frame = trireme::comm::make_frame(message);
    trireme::fuzz::require(
        std::search(bytes.begin(), bytes.end(), frame.begin(), frame.end()) != bytes.end(),
        "each message occurs in the stream");
  }
  return 0;
}
