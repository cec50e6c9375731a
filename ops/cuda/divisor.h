// Division by numbers that are known at planning time: a multiplication and a shift instead of
// about fifty instructions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/error.h"

namespace trireme::ops::cuda {

struct Division {
  int64_t quotient, remainder;
};

// Divides numbers from 0 to `largest`. With m = ceil(2^64 / d), floor(n * m / 2^64) equals floor(n
// / d) if n * d < 2^64 (Granlund and Montgomery, PLDI 1994). Throws Error if `largest` is too
// large.
class Divisor {
 public:
  Divisor() = default;
  Divisor(int64_t divisor, int64_t largest)
      : divisor_(divisor), reciprocal_(~uint64_t{0} / static_cast<uint64_t>(divisor) + 1) {
    if (high(static_cast<uint64_t>(largest), static_cast<uint64_t>(divisor)) != 0) {
      throw Error("the tensor is too large for 64-bit arithmetic");
    }
  }

  __host__ __device__ int64_t value() const { return divisor_; }
  __host__ __device__ Division divide(int64_t n) const {
    // The reciprocal of 1 wraps around to 0.
    const int64_t quotient =
        reciprocal_ ? static_cast<int64_t>(high(static_cast<uint64_t>(n), reciprocal_)) : n;
    return {quotient, n - quotient * divisor_};
  }

 private:
  // Returns the upper half of the product.
  __host__ __device__ static uint64_t high(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  }

  int64_t divisor_ = 1;
  uint64_t reciprocal_ = 0;
};

}  // namespace trireme::ops::cuda
