#include "data/formats/token_windows.h"

#include <algorithm>

#include "core/ignored_label.h"
#include "core/random.h"

namespace trireme::data {

TokenWindows::TokenWindows(int64_t tokens, int64_t length, Part part, bool random_offset)
    : tokens_(tokens), length_(length) {
  const int64_t targets = std::max<int64_t>(tokens - 1, 0);
  if (part == Part::kEvaluation) {
    size_ = (targets + length - 1) / length;
    return;
  }
  size_ = targets / length;
  if (!random_offset || size_ == 0) return;
  // One window less leaves room for any offset.
  if (size_ > 1) --size_;
  max_offset_ = std::min(length - 1, targets - size_ * length);
}

int64_t TokenWindows::unused() const {
  return tokens_ - (size_ == 0 ? 0 : std::min(size_ * length_ + 1, tokens_));
}

int64_t TokenWindows::begin(int64_t window, uint64_t seed, int64_t epoch) const {
  if (max_offset_ == 0 || epoch == 0) return window * length_;
  const Random random(seed, RandomPurpose::kAugment, static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(random.bits(0)) % (max_offset_ + 1) + window * length_;
}

int64_t TokenWindows::inputs_at(int64_t begin) const {
  return std::min(length_, tokens_ - 1 - begin);
}

void pad_window(std::span<int32_t> inputs, std::span<int32_t> targets, int64_t used) {
  std::ranges::fill(inputs.subspan(static_cast<size_t>(used)), 0);
  std::ranges::fill(targets.subspan(static_cast<size_t>(used)), kIgnoredLabel);
}

}  // namespace trireme::data
