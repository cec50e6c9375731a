// Rows of a head whose elements are divided among the lanes of a warp.
#pragma once

#include <string>
#include <type_traits>

#include "ops/cuda/element.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"

namespace trireme::ops::cuda {

// A lane writes elements lane, lane + kWarpSize, ... of the row.
template <class T, int P>
__device__ void write_row(T* row, int64_t dim, float factor, const float (&values)[P]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int i = 0; i < P; ++i) {
    if (lane + i * kWarpSize < dim) row[lane + i * kWarpSize] = from_float<T>(factor * values[i]);
  }
}

// Calls f(T(), std::integral_constant<int, P>()) with the elements of a head that a lane has.
template <class F>
Plan with_head_dim(DType dtype, int64_t dim, F f) {
  constexpr int64_t kMaxDim = 4 * kWarpSize;
  if (dim > kMaxDim) {
    throw Error("attention: heads have " + std::to_string(dim) +
                " elements; on a GPU they have at most " + std::to_string(kMaxDim));
  }
  return with_element(dtype, [&]<class T>(T) -> Plan {
    if (dim <= kWarpSize) return f(T(), std::integral_constant<int, 1>());
    if (dim <= 2 * kWarpSize) return f(T(), std::integral_constant<int, 2>());
    return f(T(), std::integral_constant<int, 4>());
  });
}

}  // namespace trireme::ops::cuda
