#include <cstdint>

#include "ops/cuda/copy_columns.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/pack.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kThreads = 256;

// A row of y has the columns of the same row of x, as many as there are of both, then zeros.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    copy_columns_kernel(const T* x, int64_t x_columns, int64_t packs, Divisor row_packs, T* y) {
  const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const auto [row, place] = row_packs.divide(pack);
  Pack<T, N> values{};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int64_t column = place * N + i;
    if (column < x_columns) values.values[i] = x[row * x_columns + column];
  }
  store(y + pack * N, values);
}

// T: an integer of the size of an element.
template <class T>
void copy(Stream& stream, const void* x, int64_t rows, int64_t x_columns, void* y,
          int64_t y_columns) {
  const auto with_size = [&]<int N>(Size<N>) {
    const int64_t packs = rows * y_columns / N;
    trireme::cuda::launch("copy_columns", copy_columns_kernel<T, N>,
                          {.blocks = blocks_of(packs, kThreads), .threads = dim3(kThreads)}, stream,
                          static_cast<const T*>(x), x_columns, packs, Divisor(y_columns / N, packs),
                          static_cast<T*>(y));
  };
  constexpr int kPack = kPackSize<T>;
  y_columns % kPack == 0 ? with_size(Size<kPack>()) : with_size(Size<1>());
}

}  // namespace

void copy_columns(Stream& stream, DType dtype, const void* x, int64_t rows, int64_t x_columns,
                  void* y, int64_t y_columns) {
  if (size_of(dtype) == sizeof(uint16_t)) {
    copy<uint16_t>(stream, x, rows, x_columns, y, y_columns);
  } else {
    copy<uint32_t>(stream, x, rows, x_columns, y, y_columns);
  }
}

}  // namespace trireme::ops::cuda
