// Cuts a stream of bytes into messages: "TRF1", the length as 4 bytes (little-endian), the message.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace trireme::comm {

// Longer ones are not sent, and taken for garbage where they are announced.
constexpr size_t kLongestMessage = size_t{4} << 20;

// Throws std::length_error when the message is too long.
std::vector<std::byte> make_frame(std::span<const std::byte> message);

// Puts together what a stream brings in pieces of any size. Holds no more memory than has come.
class FrameReader {
 public:
  using Take = std::function<void(std::span<const std::byte> message)>;

  // Hands over each message that the bytes complete. False: this is no stream of frames, and
  // nothing more is read from it.
  bool read(std::span<const std::byte> bytes, const Take& take);

 private:
  // Whether `pending_` is the beginning of a frame.
  bool plausible() const;

  std::vector<std::byte> pending_;  // the beginning of a frame
  bool broken_ = false;
};

}  // namespace trireme::comm
