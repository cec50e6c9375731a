// Divides a byte stream into messages. A frame is "TRF1", the length of the message as 4 bytes
// (little-endian), and the message.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace trireme::comm {

// Longer messages are not sent, and are treated as garbage when a frame announces them.
constexpr size_t kMaxMessageBytes = size_t{4} << 20;

// Returns the message as a frame. Throws std::length_error if it is longer than kMaxMessageBytes.
std::vector<std::byte> make_frame(std::span<const std::byte> message);

// Assembles messages from a stream that arrives in pieces of any size. Allocates memory only for
// bytes that have arrived.
class FrameReader {
 public:
  using Handler = std::function<void(std::span<const std::byte> message)>;

  // Calls `handler` for each message that `bytes` completes. Returns false if the stream does not
  // consist of frames; later calls then ignore their bytes.
  bool read(std::span<const std::byte> bytes, const Handler& handler);

 private:
  // Returns false if `pending_` cannot be the beginning of a frame.
  bool plausible() const;

  std::vector<std::byte> pending_;  // the beginning of a frame
  bool broken_ = false;
};

}  // namespace trireme::comm
