// Kernels for elementwise functions of arrays with the same element order: y[i] = f(a[i], b[i],
// ...).
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "core/cuda/launch.h"
#include "core/tensor.h"
#include "ops/cuda/element.h"

namespace trireme::ops::cuda {

// Returns true if all pointers are aligned for accesses of N elements.
template <int N, class... T>
bool is_aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % sizeof(Pack<T, N>) == 0) && ...);
}

// Returns true if the elements of a tensor of this shape have the same order in both layouts.
inline bool same_order(const Shape& shape, const Layout& a, const Layout& b) {
  return a == b || shape.rank() < 3 || shape[1] == 1 || shape.elements() == shape[0] * shape[1];
}

// Returns the number of blocks for `count` items with `per_block` items each.
inline dim3 blocks_of(int64_t count, int64_t per_block) {
  return dim3(static_cast<unsigned>((count + per_block - 1) / per_block));
}

inline constexpr int kMapThreads = 256;
inline constexpr int kMapPacks = 2;  // per thread, so that enough reads are in flight
inline constexpr int kMapReach = kMapThreads * kMapPacks * 16;

// The length of the arrays. Elements below `packed` can be accessed one pack at a time, the
// remaining ones only one by one: the end of an array, or all of it if it is not aligned.
struct Extent {
  int64_t count, packed;
};

template <int N, class T>
__device__ Pack<T, N> load_pack(const T* x, int64_t at, const Extent& extent) {
  if (at < extent.packed) return *reinterpret_cast<const Pack<T, N>*>(x + at);
  Pack<T, N> pack{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at + i < extent.count) pack.values[i] = x[at + i];
  }
  return pack;
}

template <int N, class T>
__device__ void store_pack(T* y, int64_t at, const Extent& extent, const Pack<T, N>& pack) {
  if (at < extent.packed) {
    *reinterpret_cast<Pack<T, N>*>(y + at) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at + i < extent.count) y[at + i] = pack.values[i];
  }
}

template <int N, class F, class Y, class... Xs>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(Extent extent, F f, Y* y, const Xs*... xs) {
  const int64_t first = (int64_t{blockIdx.x} * kMapThreads * kMapPacks + threadIdx.x) * N;
  if (first >= extent.count) return;
  std::tuple<Pack<Xs, N>...> in[kMapPacks];
  Pack<Y, N> out[kMapPacks];
#pragma unroll
  for (int k = 0; k < kMapPacks; ++k) {
    in[k] = {load_pack<N>(xs, first + k * kMapThreads * N, extent)...};
  }
#pragma unroll
  for (int k = 0; k < kMapPacks; ++k) {
    const int64_t at = first + k * kMapThreads * N;
    out[k] = std::apply([&](const auto&... x) { return f(at, x...); }, in[k]);
  }
#pragma unroll
  for (int k = 0; k < kMapPacks; ++k) {
    store_pack(y, first + k * kMapThreads * N, extent, out[k]);
  }
}

// Computes y[at...] = f(at, x[at...]...) with Pack<Y, N> f(int64_t, const Pack<Xs, N>&...), where N
// elements of the largest type are 16 bytes and `at` is a multiple of N. f may also be called for
// up to kMapReach elements beyond the end; those results are discarded. y may be one of the xs.
template <class F, class Y, class... Xs>
void map_packs(const char* name, Stream& stream, int64_t count, const F& f, Y* y, const Xs*... xs) {
  constexpr int kSize = std::min({kPackSize<Y>, kPackSize<Xs>...});
  if (count == 0) return;
  const bool aligned = is_aligned<kSize>(y, xs...);
  const Extent extent{count, aligned ? count / kSize * kSize : 0};
  const trireme::cuda::Grid grid{.blocks = blocks_of(count, kMapThreads * kMapPacks * kSize),
                                 .threads = dim3(kMapThreads)};
  trireme::cuda::launch(name, map_kernel<kSize, F, Y, Xs...>, grid, stream, extent, f, y, xs...);
}

// Adapts a function of floats to packs.
template <class Y, class F>
struct FloatFunction {
  F f;

  template <int N, class... Xs>
  __device__ Pack<Y, N> operator()(int64_t, const Pack<Xs, N>&... x) const {
    return apply<N>(to_float(x)...);
  }

 private:
  template <int N, class... Packs>
  __device__ Pack<Y, N> apply(const Packs&... x) const {
    Pack<float, N> y;
#pragma unroll
    for (int i = 0; i < N; ++i) y.values[i] = f(x.values[i]...);
    return from_float<Y>(y);
  }
};

// Computes y[i] = f(x[i]...) in float. y may be one of the xs.
template <class F, class Y, class... Xs>
void map(const char* name, Stream& stream, int64_t count, const F& f, Y* y, const Xs*... xs) {
  map_packs(name, stream, count, FloatFunction<Y, F>{f}, y, xs...);
}

}  // namespace trireme::ops::cuda
