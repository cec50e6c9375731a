// Half precision as it is stored, for sums on the host; the types that computers add as they are
// pass through.
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

// What a sum is kept in.
template <class T>
T widen(T x) {
  return x;
}
inline float widen(BF16 x) { return from_bf16(x.bits); }
inline float widen(F16 x) {
  constexpr uint32_t kRebias = 127 - 15;
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t bits = (magnitude << 13) + (kRebias << 23);
  if (magnitude >= 0x7c00) bits += kRebias << 23;  // infinity, NaN
  if (magnitude < 0x400) bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

// Rounds to nearest, ties to even.
template <class T>
T narrow(decltype(widen(T())) x) {
  return x;
}
template <>
inline BF16 narrow<BF16>(float x) {
  return {to_bf16(x)};
}
template <>
inline F16 narrow<F16>(float x) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = (magnitude + 0xfff + (magnitude >> 13 & 1) - kRebias) >> 13;
  // Below 2^-14 the steps are 2^-24, as those of a float from 1/2 to 1: adding 1/2 rounds.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                             std::bit_cast<uint32_t>(0.5f);
  half = magnitude < 0x38800000 ? subnormal : half;
  half = magnitude >= 0x47800000 ? 0x7c00 : half;  // 2^16 and more
  half = magnitude > 0x7f800000 ? 0x7e00 : half;   // NaN
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace trireme::comm::mpi
