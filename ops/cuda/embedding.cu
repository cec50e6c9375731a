// Forward is bound by memory. Backward sorts the rows by token and sums the segments with the same
// token in a fixed order, without atomics, so that it is deterministic.
#include <limits>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/sort_tokens.h"
#include "ops/embedding.h"
#include "ops/function_op.h"
#include "ops/row_positions.h"

namespace trireme::ops::cuda {
namespace {

constexpr int64_t kSortedRows = 32;  // sorted rows that a thread sums
constexpr int kMergedPieces = 8;     // sums of pieces that a thread loads at a time

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

// The sorted rows in pieces of kSortedRows. A segment, the rows with one token, may span several
// pieces.
struct SortedRows {
  const TokenKey* keys;
  int64_t rows, vocabulary;

  __device__ int64_t begin(int64_t piece) const { return piece * kSortedRows; }
  __device__ int64_t end(int64_t piece) const { return min(rows, (piece + 1) * kSortedRows); }
  __device__ bool is_valid(uint32_t token) const { return token < vocabulary; }
  // Whether rows i - 1 and i are of the same segment.
  __device__ bool continues(int64_t i) const {
    return i > 0 && i < rows && token_of(keys[i]) == token_of(keys[i - 1]);
  }
  // Returns the last piece of the segment of row i.
  __device__ int64_t last_piece(int64_t i) const {
    const uint32_t token = token_of(keys[i]);
    int64_t inside = i, outside = rows;
    while (outside - inside > 1) {
      const int64_t middle = (inside + outside) / 2;
      (token_of(keys[middle]) == token ? inside : outside) = middle;
    }
    return inside / kSortedRows;
  }
};

template <int N>
__device__ void add_to(Pack<float, N>& sum, const Pack<float, N>& values) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum.values[i] += values.values[i];
}

template <int N>
__device__ void add_to_row(float* to, const Pack<float, N>& values) {
  Pack<float, N> sum = load<N>(to);
  add_to(sum, values);
  store(to, sum);
}

// Adds segments that lie in one piece to the table. Of other segments, it writes the sums of their
// parts: partials [pieces, 2, width] has the part that ends in the piece or goes through it, and
// the part that begins in the piece.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    sum_pieces_kernel(const T* dy, SortedRows sorted, int64_t pieces, int64_t width, float* dtable,
                      float* partials) {
  const int64_t piece = row_of_thread();
  if (piece >= pieces) return;
  const int64_t begin = sorted.begin(piece), end = sorted.end(piece);
  partials += 2 * piece * width;
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> sum{};
    bool from_before = sorted.continues(begin);
    for (int64_t i = begin; i < end; ++i) {
      const TokenKey key = sorted.keys[i];
      if (!sorted.is_valid(token_of(key))) return;  // as are all later ones
      add_to(sum, to_float(load<N>(dy + row_of(key) * width + at)));
      const bool goes_on = sorted.continues(i + 1);
      if (goes_on && i + 1 < end) continue;
      if (from_before || goes_on) {
        store(partials + (from_before ? 0 : width) + at, sum);
      } else {
        add_to_row(dtable + token_of(key) * width + at, sum);
      }
      sum = {};
      from_before = false;
    }
  });
}

// Adds segments that begin in a piece and go on in the next to the table. A segment may have very
// many pieces, so several are loaded at a time.
template <int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    merge_pieces_kernel(SortedRows sorted, int64_t pieces, int64_t width, const float* partials,
                        float* dtable) {
  const int64_t piece = row_of_thread();
  if (piece >= pieces) return;
  const int64_t end = sorted.end(piece);
  const uint32_t token = token_of(sorted.keys[end - 1]);
  const bool begins =
      !sorted.continues(sorted.begin(piece)) || token_of(sorted.keys[sorted.begin(piece)]) != token;
  if (!begins || !sorted.continues(end) || !sorted.is_valid(token)) return;
  const int64_t last = sorted.last_piece(end);
  each_pack<N>(width, [&](int64_t at) {
    Pack<float, N> sum = load<N>(partials + (2 * piece + 1) * width + at);
#pragma unroll kMergedPieces
    for (int64_t next = piece + 1; next <= last; ++next) {
      add_to(sum, load<N>(partials + 2 * next * width + at));
    }
    add_to_row(dtable + token * width + at, sum);
  });
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
    // A thread has one pack of columns.
    const int64_t pieces = (rows + kSortedRows - 1) / kSortedRows;
    const trireme::cuda::Grid sums = row_grid(pieces, kPacksPerRowThread * width / N);
    const size_t key_bytes =
        device_aligned(static_cast<size_t>(token_keys(rows)) * sizeof(TokenKey));
    const size_t partial_bytes = static_cast<size_t>(2 * pieces * width) * sizeof(float);
    const auto work = [=](Stream& stream, Args args, void* scratch) {
      auto* keys = static_cast<TokenKey*>(scratch);
      auto* partials = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + key_bytes);
      const SortedRows sorted{keys, rows, vocabulary};
      const auto* dy = pointer<T>(args, Op::kDy);
      const auto* addend = pointer<float>(args, Op::kAddend);
      auto* dtable = pointer<float>(args, Op::kDtable);
      if (addend != dtable) {
        trireme::cuda::launch("embedding_backward", copy_table_kernel<N>, table, stream, addend,
                              vocabulary, width, dtable);
      }
      sort_tokens("embedding_backward", stream, pointer<int32_t>(args, Op::kTokens), rows, keys);
      trireme::cuda::launch("embedding_backward", sum_pieces_kernel<T, N>, sums, stream, dy, sorted,
                            pieces, width, dtable, partials);
      trireme::cuda::launch("embedding_backward", merge_pieces_kernel<N>, sums, stream, sorted,
                            pieces, width, partials, dtable);
      if (length == 0) return;
      trireme::cuda::launch("embedding_backward", position_sums_kernel<T, N>,
                            row_grid(positions, width / N), stream, dy, rows, width, length,
                            positions, pointer<float>(args, Op::kDpositions));
    };
    return function_op(in_row_major(given), work, key_bytes + partial_bytes);
  });
}

}  // namespace trireme::ops::cuda
