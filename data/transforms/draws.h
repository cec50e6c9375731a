// The random numbers that a transform draws for a sample. They are a pure function of (seed, epoch,
// sample, index of the transform), so they do not depend on threads, ranks or other transforms.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace trireme::data {

class Draws {
 public:
  // `transform` is the index among the transforms, in [0, 256).
  Draws(uint64_t seed, int64_t epoch, int64_t sample, int transform)
      : random_(seed, RandomPurpose::kAugment, static_cast<uint64_t>(epoch)),
        next_((static_cast<uint64_t>(sample) << 24) | (static_cast<uint64_t>(transform) << 16)) {}

  uint32_t bits() {
    if (next_ % 4 == 0 || !have_) group_ = random_.four(next_ / 4), have_ = true;
    return group_[next_++ % 4];
  }
  // Returns a number in [low, high).
  float uniform(float low = 0, float high = 1) {
    return low + (high - low) * trireme::uniform(bits());
  }
  // Returns an integer in [0, count).
  int below(int count) {
    return static_cast<int>((uint64_t{bits()} * static_cast<uint64_t>(count)) >> 32);
  }
  // Returns true with this probability; always if it is 1.
  bool chance(float probability) { return trireme::uniform(bits()) < probability; }

 private:
  Random random_;
  uint64_t next_;
  Random4 group_{};
  bool have_ = false;
};

}  // namespace trireme::data
