// The extensions of CUDA C++ that our kernels use. Included before everything else in .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#include "threads.h"

// Blocks run sequentially, so a static variable is sufficient.
#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// --- Synchronization ---

using Where = std::source_location;

inline void __syncthreads(const Where& where = Where::current()) {
  trireme::emulation::sync_threads(false, where);
}
inline int __syncthreads_count(int predicate, const Where& where = Where::current()) {
  return trireme::emulation::sync_threads(predicate != 0, where);
}
inline int __syncthreads_or(int predicate, const Where& where = Where::current()) {
  return trireme::emulation::sync_threads(predicate != 0, where) != 0;
}
inline int __syncthreads_and(int predicate, const Where& where = Where::current()) {
  return trireme::emulation::sync_threads(predicate == 0, where) == 0;
}

inline unsigned __ballot_sync(unsigned mask, int predicate, const Where& where = Where::current()) {
  return trireme::emulation::ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, const Where& where = Where::current()) {
  return trireme::emulation::ballot(mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, const Where& where = Where::current()) {
  return trireme::emulation::ballot(mask, predicate == 0, where) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, const Where& where = Where::current()) {
  trireme::emulation::ballot(mask, false, where);
}

namespace trireme::emulation {

template <class T>
T shuffle(unsigned mask, T value, unsigned source, const Where& where) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace trireme::emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              const Where& where = Where::current()) {
  const unsigned lane = trireme::emulation::lane(), w = static_cast<unsigned>(width);
  const unsigned from = (lane & ~(w - 1)) | (static_cast<unsigned>(source) & (w - 1));
  return trireme::emulation::shuffle(mask, value, from, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 const Where& where = Where::current()) {
  const unsigned lane = trireme::emulation::lane(), w = static_cast<unsigned>(width);
  const bool inside = (lane & (w - 1)) >= delta;
  return trireme::emulation::shuffle(mask, value, inside ? lane - delta : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   const Where& where = Where::current()) {
  const unsigned lane = trireme::emulation::lane(), w = static_cast<unsigned>(width);
  const bool inside = (lane & (w - 1)) + delta < w;
  return trireme::emulation::shuffle(mask, value, inside ? lane + delta : lane, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  const Where& where = Where::current()) {
  const unsigned lane = trireme::emulation::lane(), w = static_cast<unsigned>(width);
  const unsigned from = lane ^ static_cast<unsigned>(lane_mask);
  return trireme::emulation::shuffle(mask, value, from <= (lane | (w - 1)) ? from : lane, where);
}

// --- Memory ---

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldlu(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}

// Threads are switched only where they wait, so plain accesses are atomic.
template <class T>
T atomicAdd(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, static_cast<T>(*to + value));
}
template <class T>
T atomicSub(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, static_cast<T>(*to - value));
}
template <class T>
T atomicMax(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, std::max(*to, value));
}
template <class T>
T atomicMin(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, std::min(*to, value));
}
template <class T>
T atomicAnd(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, *to & value);
}
template <class T>
T atomicOr(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, *to | value);
}
template <class T>
T atomicExch(T* to, std::type_identity_t<T> value) {
  return std::exchange(*to, value);
}
template <class T>
T atomicCAS(T* to, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return *to == expected ? std::exchange(*to, desired) : *to;
}
inline unsigned atomicInc(unsigned* to, unsigned limit) {
  return std::exchange(*to, *to >= limit ? 0 : *to + 1);
}

// --- Arithmetic ---

using std::max;
using std::min;
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0), 1); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
