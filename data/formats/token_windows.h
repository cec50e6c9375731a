// How samples of `length` tokens cover a sequence of tokens. The target of each token is the next
// one, so the first token is no target and the last one is no input.
#pragma once

#include <cstdint>
#include <span>

#include "data/dataset.h"

namespace trireme::data {

class TokenWindows {
 public:
  // Training windows are complete. With `random_offset`, all windows of an epoch after the first
  // begin later by the same random number of tokens, less than `length`. Evaluation windows cover
  // each target exactly once: the last one may be incomplete.
  TokenWindows(int64_t tokens, int64_t length, Part part, bool random_offset = false);

  int64_t size() const { return size_; }
  // Returns the number of tokens that belong to no window; with random offsets, at most that many.
  int64_t unused() const;
  // Returns the first token of a window.
  int64_t begin(int64_t window, uint64_t seed, int64_t epoch) const;
  // Returns the number of inputs of the window that begins with this token.
  int64_t inputs_at(int64_t begin) const;

 private:
  int64_t tokens_;
  int64_t length_;
  int64_t size_ = 0;
  int64_t max_offset_ = 0;
};

// Completes a sample whose first `used` inputs and targets have been written: the other inputs are
// 0, and the other targets are ops::kIgnoredLabel.
void pad_window(std::span<int32_t> inputs, std::span<int32_t> targets, int64_t used);

}  // namespace trireme::data
