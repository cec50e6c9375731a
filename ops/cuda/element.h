// Elements of tensors in kernels: stored as f32, f16 or bf16, computed with as float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"

namespace trireme::cuda {

__host__ __device__ inline float to_float(float x) { return x; }
__host__ __device__ inline float to_float(__half x) { return __half2float(x); }
__host__ __device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
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

// N neighbours that are read and written at once; 16 bytes are the widest access there is.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T values[N];
};
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

// Calls f(T()) with the element type of a floating-point tensor.
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

}  // namespace trireme::cuda
