// Vectors of 16 floats in GCC's vector extension, for use in TRIREME_VECTORIZED functions. Without
// optimization, std::bit_cast is a call, and AVX-512 code passes vectors in other registers than it
// expects: hence __builtin_bit_cast.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "core/half.h"
#include "core/vectorized.h"

namespace trireme::ops::cpu {

constexpr int kLanes = 16;

using F16 = float __attribute__((vector_size(64)));
using D8 = double __attribute__((vector_size(64)));
using D16 = double __attribute__((vector_size(128)));
using I16 = int32_t __attribute__((vector_size(64)));
using U16 = uint32_t __attribute__((vector_size(64)));
using Halves16 = uint16_t __attribute__((vector_size(32)));

// bfloat16: the upper half of a float.
struct BFloat16 {
  uint16_t bits;
};

TRIREME_INLINE inline float to_float(float x) { return x; }
TRIREME_INLINE inline float to_float(BFloat16 x) { return from_bf16(x.bits); }
template <class T>
TRIREME_INLINE inline T from_float(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return {to_bf16(x)};
  } else {
    return x;
  }
}

// The lanes of a vector that are in memory: all of them, or the first `count`.
struct AllLanes {};
struct SomeLanes {
  int count;
};

TRIREME_INLINE inline F16 load(const float* from, AllLanes) {
  F16 v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
TRIREME_INLINE inline F16 load(const BFloat16* from, AllLanes) {
  Halves16 halves;
  std::memcpy(&halves, from, sizeof(halves));
  return __builtin_bit_cast(F16, __builtin_convertvector(halves, U16) << 16);
}
template <class T>
TRIREME_INLINE inline F16 load(const T* from, SomeLanes lanes) {
  alignas(64) float values[kLanes] = {};
  for (int i = 0; i < lanes.count; ++i) values[i] = to_float(from[i]);
  return load(values, AllLanes());
}
TRIREME_INLINE inline void store(float* to, F16 v, AllLanes) { std::memcpy(to, &v, sizeof(v)); }
TRIREME_INLINE inline void store(BFloat16* to, F16 v, AllLanes) {
  // Same rounding as to_bf16.
  const auto bits = __builtin_bit_cast(U16, v);
  const U16 nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const U16 upper = v == v ? nearest : (bits >> 16) | 0x40;
  const Halves16 halves = __builtin_convertvector(upper, Halves16);
  std::memcpy(to, &halves, sizeof(halves));
}
template <class T>
TRIREME_INLINE inline void store(T* to, F16 v, SomeLanes lanes) {
  alignas(64) float values[kLanes];
  store(values, v, AllLanes());
  for (int i = 0; i < lanes.count; ++i) to[i] = from_float<T>(values[i]);
}

// Returns condition ? a : b for each lane.
TRIREME_INLINE inline F16 where(I16 condition, F16 a, F16 b) { return condition ? a : b; }

// A double-precision sum for each lane.
struct LaneSums {
  D8 low{}, high{};
  TRIREME_INLINE void add(F16 v) { add(__builtin_convertvector(v, D16)); }
  TRIREME_INLINE void add_product(F16 a, F16 b) {
    add(__builtin_convertvector(a, D16) * __builtin_convertvector(b, D16));
  }
  TRIREME_INLINE void store_to(double* lanes) const {
    std::memcpy(lanes, &low, sizeof(low));
    std::memcpy(lanes + 8, &high, sizeof(high));
  }

 private:
  TRIREME_INLINE void add(D16 v) {
    low += __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    high += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  }
};

// Returns e^x with an error of at most two units in the last place. Loops over it can be vectorized
// (after Cephes).
TRIREME_INLINE inline float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kUnit = 0x1.8p23f;  // the last bit of numbers of this size has the value 1
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float sum = x * kLog2E + kUnit, n = sum - kUnit;
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n: n, in the last bits of the sum, becomes the exponent.
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(sum) << 23) + (127u << 23));
}

TRIREME_INLINE inline float fast_sigmoid(float x) { return 1 / (1 + fast_exp(-x)); }

// Returns tanh(x) as a quotient of polynomials (those of Eigen), with an error of a few units in
// the last place. Loops over it can be vectorized, since it has no branches.
TRIREME_INLINE inline float fast_tanh(float x) {
  constexpr float kBound = 7.90531110763549805f;  // beyond, the result is 1
  x = x < -kBound ? -kBound : x > kBound ? kBound : x;
  const float s = x * x;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return x * p / q;
}

template <class T>
TRIREME_VECTORIZED static void accumulate_row(const T* row, float* sum, int64_t width) {
  for (int64_t i = 0; i < width; ++i) sum[i] += to_float(row[i]);
}

// Calls f(T()) with the C++ element type. Throws Error if the backend's own loops do not support
// it.
template <class F>
auto with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kBF16:
      return f(BFloat16());
    default:
      throw Error("the CPU backend does not compute in " + std::string(name_of(dtype)));
  }
}

}  // namespace trireme::ops::cpu
