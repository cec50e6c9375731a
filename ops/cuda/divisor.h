// Division by numbers that are known when a plan is made: a multiplication and a shift instead of
// some fifty instructions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/error.h"

namespace trireme::ops::cuda {

struct Division {
  int64_t quotient, remainder;
};

// For dividends from 0 to `largest`. With m = ceil(2^64 / d), floor(n * m / 2^64) is floor(n / d)
// as long as n * d < 2^64 (Granlund and Montgomery, PLDI 1994).
class Divisor {
 public:
  Divisor() = default;
  Divisor(int64_t divisor, int64_t largest)
      : divisor_(divisor), reciprocal_(~uint64_t{0} / static_cast<uint64_t>(divisor) + 1) {
    if (high(static_cast<uint64_t>(largest), static_cast<uint64_t>(divisor)) != 0) {
      throw Error("tensors of this size are beyond 64-bit arithmetic");
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
  // The upper half of a product.
  __host__ __device__ static uint64_t high(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  }

  int64_t divisor_ = 1;
  uint64_t reciprocal_ = 0;
};

}  // namespace trireme::ops::cuda
