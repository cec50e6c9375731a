// Half-precision types as stored in memory, and their conversion for sums on the host. Other types
// are summed as they are.
#pragma once

#include <bit>
#include <cstdint>

#include "core/half.h"

namespace trireme::comm::mpi {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// Converts a value to the type in which sums are accumulated.
template <class T>
T to_accumulator(T x) {
  return x;
}
inline float to_accumulator(BF16 x) { return from_bf16(x.bits); }
inline float to_accumulator(F16 x) {
  constexpr uint32_t kRebias = 127 - 15;
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t bits = (magnitude << 13) + (kRebias << 23);
  if (magnitude >= 0x7c00) bits += kRebias << 23;  // infinity, NaN
  if (magnitude < 0x400) bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

// Converts a sum to T. Rounds to nearest, ties to even.
template <class T>
T from_accumulator(decltype(to_accumulator(T())) x) {
  return x;
}
template <>
inline BF16 from_accumulator<BF16>(float x) {
  return {to_bf16(x)};
}
template <>
inline F16 from_accumulator<F16>(float x) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = (magnitude + 0xfff + (magnitude >> 13 & 1) - kRebias) >> 13;
  // Below 2^-14, f16 has steps of 2^-24, like a float between 1/2 and 1: adding 1/2 rounds to them.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                             std::bit_cast<uint32_t>(0.5f);
  half = magnitude < 0x38800000 ? subnormal : half;
  half = magnitude >= 0x47800000 ? 0x7c00 : half;  // 2^16 and more
  half = magnitude > 0x7f800000 ? 0x7e00 : half;   // NaN
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace trireme::comm::mpi
