// Kernels that transpose batches of matrices: a sample in row-major order is a matrix [channels,
// positions], in channels-last order a matrix [positions, channels].
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cuda/launch.h"
#include "core/tensor.h"
#include "ops/cuda/reduce.h"

namespace trireme::ops::cuda {

inline constexpr int kTransposeThreads = 256;  // maximum
inline constexpr int kTransposeBatch = 8;      // reads in flight per thread

// A batch of contiguous matrices [rows, columns]. They are transposed through shared memory in
// tiles, so that adjacent threads read and write adjacent elements. A tile is square if the matrix
// is large enough, and long if there are few rows or columns.
struct Matrices {
  int64_t count = 0;
  int64_t rows = 0, columns = 0;
  int tile_rows = 0, tile_columns = 0;

  Matrices(int64_t matrices, int64_t rows_of_each, int64_t columns_of_each)
      : count(matrices), rows(rows_of_each), columns(columns_of_each) {
    constexpr int64_t kSide = 64, kElements = kSide * kSide;
    tile_rows = even_share(rows, columns < kSide ? kElements / columns : kSide);
    tile_columns = even_share(columns, kElements / tile_rows);
  }

  __host__ __device__ unsigned row_tiles() const { return tiles(rows, tile_rows); }
  __host__ __device__ unsigned column_tiles() const { return tiles(columns, tile_columns); }
  // Returns the distance between columns of a tile; odd, so that all banks of shared memory are
  // used.
  __host__ __device__ int pitch() const { return tile_rows | 1; }

 private:
  __host__ __device__ static unsigned tiles(int64_t extent, int tile) {
    return static_cast<unsigned>((extent + tile - 1) / tile);
  }
  // Returns the size of shares that are as equal as whole memory sectors allow, at most `max`.
  static int even_share(int64_t extent, int64_t max) {
    constexpr int64_t kSector = 16;  // elements of 2 bytes
    const int64_t shares = (extent + max - 1) / max;
    const int64_t even = (extent + shares - 1) / shares;
    return static_cast<int>(std::min({extent, max, (even + kSector - 1) / kSector * kSector}));
  }
};

// Returns the matrices of a tensor [N, C, ...] in this layout.
inline Matrices matrices_of(const Shape& shape, const Layout& layout) {
  const int64_t positions = shape.elements() / (shape[0] * shape[1]);
  return layout == Layout::channels_last() ? Matrices(shape[0], positions, shape[1])
                                           : Matrices(shape[0], shape[1], positions);
}

// Iterates over the elements of a tile that a thread processes. Adjacent threads process adjacent
// columns.
struct TileWalk {
  int row, column;
  int64_t offset;  // offset in memory, for rows `row_stride` elements apart

  __device__ TileWalk(int tile_columns, int64_t row_stride)
      : row(static_cast<int>(threadIdx.x) / tile_columns),
        column(static_cast<int>(threadIdx.x) % tile_columns),
        offset(row * row_stride + column),
        columns_(tile_columns),
        row_step_(static_cast<int>(blockDim.x) / tile_columns),
        column_step_(static_cast<int>(blockDim.x) % tile_columns),
        offset_step_(row_step_ * row_stride + column_step_),
        offset_wrap_(row_stride - tile_columns) {}
  __device__ void next() {
    row += row_step_;
    column += column_step_;
    offset += offset_step_;
    if (column < columns_) return;
    row += 1;
    column -= columns_;
    offset += offset_wrap_;
  }

 private:
  int columns_, row_step_, column_step_;
  int64_t offset_step_, offset_wrap_;
};

template <class F, class From, class To>
__global__ void __launch_bounds__(kTransposeThreads)
    transpose_kernel(Matrices m, F f, const From* from, To* to) {
  To* const tile = trireme::cuda::dynamic_shared<To>();
  const unsigned row_tiles = m.row_tiles(), column_tiles = m.column_tiles();
  const int64_t first_column = int64_t{blockIdx.x % column_tiles} * m.tile_columns;
  const int64_t first_row = int64_t{blockIdx.x / column_tiles % row_tiles} * m.tile_rows;
  const int64_t matrix = blockIdx.x / column_tiles / row_tiles * (m.rows * m.columns);
  const int rows = static_cast<int>(std::min<int64_t>(m.tile_rows, m.rows - first_row));
  const int columns = static_cast<int>(std::min<int64_t>(m.tile_columns, m.columns - first_column));
  from += matrix + first_row * m.columns + first_column;
  to += matrix + first_column * m.rows + first_row;
  for (TileWalk read(columns, m.columns), stage(columns, 0); stage.row < rows;) {
    From batch[kTransposeBatch] = {};
#pragma unroll
    for (int k = 0; k < kTransposeBatch; ++k, read.next()) {
      if (read.row < rows) batch[k] = from[read.offset];
    }
#pragma unroll
    for (int k = 0; k < kTransposeBatch; ++k, stage.next()) {
      if (stage.row < rows) {
        tile[stage.column * m.pitch() + stage.row] =
            f(batch[k], first_row + stage.row, first_column + stage.column);
      }
    }
  }
  __syncthreads();
  for (TileWalk write(rows, m.rows); write.row < columns; write.next()) {
    to[write.offset] = tile[write.row * m.pitch() + write.column];
  }
}

// Computes to[column, row] = f(from[row, column], row, column) for every matrix.
template <class F, class From, class To>
void transpose(const char* name, Stream& stream, const Matrices& m, const F& f, const From* from,
               To* to) {
  const int64_t blocks = m.count * m.row_tiles() * m.column_tiles();
  if (blocks == 0) return;
  const auto tile_elements = static_cast<size_t>(m.tile_columns) * static_cast<size_t>(m.pitch());
  trireme::cuda::launch(name, transpose_kernel<F, From, To>,
                        {.blocks = dim3(static_cast<unsigned>(blocks)),
                         .threads = block_for(m.tile_rows * m.tile_columns, kTransposeThreads),
                         .shared_bytes = tile_elements * sizeof(To)},
                        stream, m, f, from, to);
}

}  // namespace trireme::ops::cuda
