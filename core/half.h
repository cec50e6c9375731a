// Conversions between f32 and the bits of 16-bit floating-point numbers. Conversions to f32 are
// exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/vectorized.h"

namespace trireme {

TRIREME_INLINE inline float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Rounds to nearest, ties to even. NaN remains NaN.
TRIREME_INLINE inline uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int mantissa = bits & 0x3FF;
  float magnitude;
  if (exponent == 0x1F) {
    magnitude = mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                              : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa + 0x400), exponent - 25);
  }
  return std::copysign(magnitude, bits & 0x8000 ? -1.0F : 1.0F);
}

}  // namespace trireme
