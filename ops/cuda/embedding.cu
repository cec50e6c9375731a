// Forward is bound by memory. Backward has no atomics, so that it is deterministic: the first row
// with a token finds the later ones with the same token and adds them up in order.
#include <limits>

#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/embedding.h"
#include "ops/function_op.h"
#include "ops/row_positions.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kLookupThreads = 256;  // of a block, which has a row

template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    embedding_kernel(const int32_t* tokens, const T* table, const T* positions, int64_t rows,
                     int64_t width, int64_t vocabulary, RowPositions position, T* y) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  const int64_t token = tokens[row];
  const bool known = token >= 0 && token < vocabulary;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> values{};
    if (known) values = to_float(load<N>(table + token * width + at));
    Pack<float, N> added{};
    if (positions) added = to_float(load<N>(positions + position(row) * width + at));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values.values[i] =
          known ? values.values[i] + added.values[i] : std::numeric_limits<float>::quiet_NaN();
    }
    store(y + row * width + at, from_float<T>(values));
  });
}

// dtable = addend, or 0 where there is none.
template <int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    copy_table_kernel(const float* addend, int64_t rows, int64_t width, float* dtable) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> values{};
    if (addend) values = load<N>(addend + row * width + at);
    store(dtable + row * width + at, values);
  });
}

// Whether an earlier row has the token of this one. All threads of the block call it.
__device__ bool occurs_before(const int32_t* tokens, int64_t row) {
  const int32_t token = tokens[row];
  for (int64_t first = 0; first < row; first += blockDim.x) {
    const int64_t other = first + threadIdx.x;
    if (__syncthreads_or(other < row && tokens[other] == token)) return true;
  }
  return false;
}

// A block has a row; of the rows with one token the first adds up all of them.
template <class T, int N>
__global__ void __launch_bounds__(kLookupThreads)
    add_to_table_kernel(const int32_t* tokens, const T* dy, int64_t rows, int64_t width,
                        int64_t vocabulary, float* dtable) {
  __shared__ int64_t matches[kLookupThreads];
  const int64_t row = blockIdx.x;
  const int64_t token = tokens[row];
  if (token < 0 || token >= vocabulary || occurs_before(tokens, row)) return;
  float* sum = dtable + token * width;
  for (int64_t first = row; first < rows; first += kLookupThreads) {
    const int64_t other = first + threadIdx.x;
    const bool match = other < rows && tokens[other] == token;
    __syncthreads();  // the matches before have been added
    matches[threadIdx.x] = match ? other : -1;
    if (!__syncthreads_or(match)) continue;
    each_pack<N>(width, [&](int64_t at) {
      Pack<float, N> values = load<N>(sum + at);
      for (int64_t found : matches) {
        if (found < 0) continue;
        const Pack<float, N> added = to_float(load<N>(dy + found * width + at));
#pragma unroll
        for (int i = 0; i < N; ++i) values.values[i] += added.values[i];
      }
      store(sum + at, values);
    });
  }
}

// dpositions [positions, width]: the sums over the sequences, of `length` rows each.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    position_sums_kernel(const T* dy, int64_t rows, int64_t width, int64_t length,
                         int64_t positions, float* dpositions) {
  const int64_t position = row_of_thread();
  if (position >= positions) return;
  const int64_t end = position < length ? rows : 0;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> sum{};
    for (int64_t row = position; row < end; row += length) {
      const Pack<float, N> values = to_float(load<N>(dy + row * width + at));
#pragma unroll
      for (int i = 0; i < N; ++i) sum.values[i] += values.values[i];
    }
    store(dpositions + position * width + at, sum);
  });
}

}  // namespace

Plan plan(const EmbeddingForward& op, const ContextPtr&, Specs given) {
  using Op = EmbeddingForward;
  const int64_t rows = given[Op::kY].shape[0], width = given[Op::kY].shape[1];
  const int64_t vocabulary = given[Op::kTable].shape[0];
  const int64_t length = sequence_length(op.length, given[Op::kPositions], 1);
  const int64_t part = part_rows(given[Op::kStarts], rows);
  return with_pack(given[Op::kY].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, width / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      const RowPositions position{pointer<int32_t>(args, Op::kStarts), part, length};
      trireme::cuda::launch("embedding_forward", embedding_kernel<T, N>, grid, stream,
                            pointer<int32_t>(args, Op::kTokens), pointer<T>(args, Op::kTable),
                            pointer<T>(args, Op::kPositions), rows, width, vocabulary, position,
                            pointer<T>(args, Op::kY));
    });
  });
}

Plan plan(const EmbeddingBackward& op, const ContextPtr&, Specs given) {
  using Op = EmbeddingBackward;
  const int64_t rows = given[Op::kDy].shape[0], width = given[Op::kDy].shape[1];
  const int64_t vocabulary = given[Op::kDtable].shape[0];
  const int64_t length = sequence_length(op.length, given[Op::kDpositions], 0);
  const int64_t positions = sequence_length(0, given[Op::kDpositions], 0);
  return with_pack(given[Op::kDy].dtype, width, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid table = row_grid(vocabulary, width / N);
    const trireme::cuda::Grid lookups{.blocks = dim3(static_cast<unsigned>(rows)),
                                      .threads = dim3(kLookupThreads)};
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      const auto* tokens = pointer<int32_t>(args, Op::kTokens);
      const auto* dy = pointer<T>(args, Op::kDy);
      const auto* addend = pointer<float>(args, Op::kAddend);
      auto* dtable = pointer<float>(args, Op::kDtable);
      if (addend != dtable) {
        trireme::cuda::launch("embedding_backward", copy_table_kernel<N>, table, stream, addend,
                              vocabulary, width, dtable);
      }
      trireme::cuda::launch("embedding_backward", add_to_table_kernel<T, N>, lookups, stream,
                            tokens, dy, rows, width, vocabulary, dtable);
      if (length == 0) return;
      trireme::cuda::launch("embedding_backward", position_sums_kernel<T, N>,
                            row_grid(positions, width / N), stream, dy, rows, width, length,
                            positions, pointer<float>(args, Op::kDpositions));
    });
  });
}

}  // namespace trireme::ops::cuda
