// Element types of tensors in kernels: stored as f32, f16 or bf16, converted to float for
// computation.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"

namespace trireme::ops::cuda {

__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline float to_float(__half x) { return __half2float(x); }
__host__ __device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest, ties to even.
template <class T>
__host__ __device__ inline T from_float(float x);
template <>
__host__ __device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__host__ __device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// N adjacent elements that are read and written with one access, of at most 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T values[N];
};
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

// Converts all values of a pack. 2-byte values are converted in pairs, which takes half of the
// instructions and, until they are converted, half of the registers.
template <class T, int N>
__device__ inline Pack<float, N> to_float(const Pack<T, N>& pack) {
  Pack<float, N> values;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    const auto words = std::bit_cast<Pack<uint32_t, N / 2>>(pack);
    for (int i = 0; i < N / 2; ++i) {
      values.values[2 * i] = std::bit_cast<float>(words.values[i] << 16);
      values.values[2 * i + 1] = std::bit_cast<float>(words.values[i] & 0xFFFF0000);
    }
  } else {
    for (int i = 0; i < N; ++i) values.values[i] = to_float(pack.values[i]);
  }
  return values;
}
template <class T, int N>
__device__ inline Pack<T, N> from_float(const Pack<float, N>& values) {
  Pack<T, N> pack;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    Pack<uint32_t, N / 2> words;
    for (int i = 0; i < N / 2; ++i) {
      const float low = values.values[2 * i], high = values.values[2 * i + 1];
      const auto pair = [=] {
        if constexpr (std::is_same_v<T, __half>) return __floats2half2_rn(low, high);
        if constexpr (std::is_same_v<T, __nv_bfloat16>) return __floats2bfloat162_rn(low, high);
      }();
      std::memcpy(&words.values[i], &pair, sizeof(pair));
    }
    pack = std::bit_cast<Pack<T, N>>(words);
  } else {
    for (int i = 0; i < N; ++i) pack.values[i] = from_float<T>(values.values[i]);
  }
  return pack;
}

// Calls f(T()) with the element type of a floating-point tensor. Throws Error for other dtypes.
template <class F>
decltype(auto) with_element(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF16:
      return f(__half());
    case DType::kBF16:
      return f(__nv_bfloat16());
    default:
      throw Error("no CUDA kernel computes with " + std::string(name_of(dtype)));
  }
}

}  // namespace trireme::ops::cuda
