// Access to rows of elements, one pack at a time.
#pragma once

#include <type_traits>

#include "ops/cuda/element.h"

namespace trireme::ops::cuda {

template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <class T, int N>
__device__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <int N>
using Size = std::integral_constant<int, N>;

// Calls f(T(), Size<N>()) with the element type and the number of elements per access for rows with
// this number of columns.
template <class F>
decltype(auto) with_pack(DType dtype, int64_t columns, F f) {
  return with_element(dtype, [&]<class T>(T) {
    constexpr int kSize = kPackSize<T>;
    if (columns % kSize == 0) return f(T(), Size<kSize>());
    return f(T(), Size<1>());
  });
}

}  // namespace trireme::ops::cuda
