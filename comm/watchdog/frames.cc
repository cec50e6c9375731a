#include "comm/watchdog/frames.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>

namespace trireme::comm {
namespace {

constexpr std::array<std::byte, 4> kFrameMagic = {std::byte{'T'}, std::byte{'R'}, std::byte{'F'},
                                                  std::byte{'1'}};
constexpr size_t kHead = kFrameMagic.size() + 4;

size_t length_of(std::span<const std::byte> head) {
  size_t length = 0;
  for (size_t i = 0; i < 4; ++i) {
    length |= std::to_integer<size_t>(head[kFrameMagic.size() + i]) << (8 * i);
  }
  return length;
}

}  // namespace

std::vector<std::byte> make_frame(std::span<const std::byte> message) {
  if (message.size() > kMaxMessageBytes) throw std::length_error("message too long for a frame");
  std::vector<std::byte> frame(kFrameMagic.begin(), kFrameMagic.end());
  for (size_t i = 0; i < 4; ++i) frame.push_back(static_cast<std::byte>(message.size() >> (8 * i)));
  frame.insert(frame.end(), message.begin(), message.end());
  return frame;
}

bool FrameReader::read(std::span<const std::byte> bytes, const Handler& handler) {
  while (!broken_) {
    const bool has_head = pending_.size() >= kHead;
    const size_t needed = has_head ? kHead + length_of(pending_) : kHead;
    const size_t count = std::min(needed - pending_.size(), bytes.size());
    pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    broken_ = !plausible();
    if (broken_ || pending_.size() < needed) break;
    if (pending_.size() < kHead + length_of(pending_)) continue;  // only the head is complete
    handler(std::span(pending_).subspan(kHead));
    pending_.clear();
  }
  return !broken_;
}

bool FrameReader::plausible() const {
  const size_t known = std::min(pending_.size(), kFrameMagic.size());
  if (!std::equal(kFrameMagic.begin(), kFrameMagic.begin() + static_cast<ptrdiff_t>(known),
                  pending_.begin())) {
    return false;
  }
  return pending_.size() < kHead || length_of(pending_) <= kMaxMessageBytes;
}

}  // namespace trireme::comm
