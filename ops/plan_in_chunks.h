// The plan of LinearCrossEntropy, made of a backend's plans for chunks of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/dense.h"
#include "ops/function_op.h"
#include "ops/linear_cross_entropy.h"

namespace trireme::ops {

// The plans of a chunk of rows, in the order in which they run. Those of absent gradients are null.
struct RowChunk {
  int64_t first_row = 0;
  std::unique_ptr<OpPlan> forward, loss, backward_weights, backward_data;

  size_t scratch_bytes() const {
    size_t bytes = 0;
    for (const auto* plan : {&forward, &loss, &backward_weights, &backward_data}) {
      if (*plan) bytes = std::max(bytes, (*plan)->scratch_bytes());
    }
    return bytes;
  }
};

// Returns the plans of `rows` rows. make(op, specs) returns the backend's plan of another op.
template <class Make>
RowChunk make_chunk(const LinearCrossEntropy& op, Specs specs, int64_t first_row, int64_t rows,
                    const Make& make) {
  using O = LinearCrossEntropy;
  const TensorSpec &weight = specs[O::kWeight], &dweight = specs[O::kDweight];
  const auto rows_of = [rows](const TensorSpec& spec) -> TensorSpec {
    return {spec.dtype, {rows, spec.shape[1]}, spec.layout};
  };
  const TensorSpec x = rows_of(specs[O::kX]);
  const TensorSpec labels{DType::kI32, {rows}, Layout::row_major()};
  const TensorSpec logits{x.dtype, {rows, weight.shape[0]}, Layout::row_major()};
  const bool has_dweight = !is_absent(dweight), has_dx = !is_absent(specs[O::kDx]);
  SoftmaxCrossEntropy loss = op.loss;
  loss.first_row = first_row;
  RowChunk chunk;
  chunk.first_row = first_row;
  chunk.forward = make(DenseForward{}, std::array{x, weight, specs[O::kBias], logits, absent()});
  chunk.loss =
      make(loss, std::array{logits, labels, specs[O::kState],
                            has_dweight || has_dx ? logits : absent(), specs[O::kMetrics]});
  if (has_dweight) {
    chunk.backward_weights = make(DenseBackwardWeights{.accumulate = first_row > 0},
                                  std::array{x, logits, dweight, specs[O::kDbias]});
  }
  if (has_dx) {
    chunk.backward_data =
        make(DenseBackwardData{}, std::array{logits, weight, rows_of(specs[O::kDx]), absent()});
  }
  return chunk;
}

// Queues the work of a chunk. `args` are those of the op, with rows from the first one of the
// chunk.
inline void encode_chunk(const RowChunk& chunk, Stream& stream, Args args, void* logits,
                         void* scratch) {
  using O = LinearCrossEntropy;
  void *const x = args[O::kX], *const weight = args[O::kWeight], *const none = nullptr;
  void* const dlogits = chunk.backward_weights || chunk.backward_data ? logits : nullptr;
  chunk.forward->encode(stream, std::array{x, weight, args[O::kBias], logits, none}, scratch);
  chunk.loss->encode(
      stream, std::array{logits, args[O::kLabels], args[O::kState], dlogits, args[O::kMetrics]},
      scratch);
  if (chunk.backward_weights) {
    chunk.backward_weights->encode(
        stream, std::array{x, dlogits, args[O::kDweight], args[O::kDbias]}, scratch);
  }
  // Comes last, since dx may be x.
  if (chunk.backward_data) {
    chunk.backward_data->encode(stream, std::array{dlogits, weight, args[O::kDx], none}, scratch);
  }
}

// Returns the rows of each chunk but the last, given the bytes of a row of logits.
inline int64_t rows_per_chunk(const LinearCrossEntropy& op, int64_t row_bytes,
                              int64_t chunk_bytes) {
  constexpr int64_t kMultiple = LinearCrossEntropy::kRowMultiple;
  if (op.chunk_rows > 0) return op.chunk_rows;
  const int64_t rows = chunk_bytes / row_bytes;
  return std::max(kMultiple, rows / kMultiple * kMultiple);
}

// Returns the plan of the op. Unless the op sets chunk_rows, a chunk has as many rows as
// `chunk_bytes` of logits hold. Chunks share the memory of logits, and run and are summed in order.
// On the CPU it must be encoded on a stream that runs inline, since the arguments of its parts do
// not outlive encode().
template <class Make>
std::unique_ptr<OpPlan> plan_in_chunks(const LinearCrossEntropy& op, Specs given,
                                       int64_t chunk_bytes, const Make& make) {
  using O = LinearCrossEntropy;
  std::vector<TensorSpec> specs = in_row_major(given);
  const int64_t rows = specs[O::kX].shape[0];
  const int64_t row_bytes =
      specs[O::kWeight].shape[0] * static_cast<int64_t>(size_of(specs[O::kX].dtype));
  const int64_t chunk_rows = std::min(rows, rows_per_chunk(op, row_bytes, chunk_bytes));
  const size_t logits_bytes = device_aligned(static_cast<size_t>(chunk_rows * row_bytes));
  std::vector<RowChunk> chunks;
  size_t scratch_bytes = 0;
  for (int64_t first = 0; first < rows; first += chunk_rows) {
    chunks.push_back(make_chunk(op, specs, first, std::min(chunk_rows, rows - first), make));
    scratch_bytes = std::max(scratch_bytes, chunks.back().scratch_bytes());
  }
  auto work = [chunks = std::move(chunks), specs, logits_bytes](Stream& stream, Args args,
                                                                void* logits) {
    void* const scratch = static_cast<std::byte*>(logits) + logits_bytes;
    for (const RowChunk& chunk : chunks) {
      std::array<void*, O::kArgs> of_chunk;
      std::copy(args.begin(), args.end(), of_chunk.begin());
      for (const int arg : {O::kX, O::kLabels, O::kDx}) {
        if (!of_chunk[arg]) continue;
        const size_t bytes = specs[arg].bytes() / static_cast<size_t>(specs[arg].shape[0]);
        of_chunk[arg] = pointer<std::byte>(args, arg) + chunk.first_row * bytes;
      }
      encode_chunk(chunk, stream, of_chunk, logits, scratch);
    }
  };
  return function_op(std::move(specs), std::move(work), logits_bytes + scratch_bytes);
}

}  // namespace trireme::ops
