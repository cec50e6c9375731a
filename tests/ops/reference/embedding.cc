#include <algorithm>

#include "ops/row_positions.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const EmbeddingForward& op, Specs specs) {
  using O = EmbeddingForward;
  const int64_t rows = specs[O::kY].shape[0], width = specs[O::kY].shape[1];
  const int64_t length = sequence_length(op.length, specs[O::kPositions], 1);
  const int64_t part = part_rows(specs[O::kStarts], rows);
  return host_op(std::move(specs), [=](Args args, void*) {
    const RowPositions position{pointer<const int32_t>(args, O::kStarts), part, length};
    const auto* tokens = pointer<const int32_t>(args, O::kTokens);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        double y = in(args, O::kTable)[tokens[r] * width + i];
        if (in(args, O::kPositions)) y += in(args, O::kPositions)[position(r) * width + i];
        out(args, O::kY)[r * width + i] = y;
      }
    }
  });
}

Plan plan(const EmbeddingBackward& op, Specs specs) {
  using O = EmbeddingBackward;
  const int64_t rows = specs[O::kDy].shape[0], width = specs[O::kDy].shape[1];
  const int64_t vocabulary = specs[O::kDtable].shape[0];
  const int64_t length = sequence_length(op.length, specs[O::kDpositions], 0);
  const int64_t positions = sequence_length(0, specs[O::kDpositions], 0);
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* tokens = pointer<const int32_t>(args, O::kTokens);
    for (int64_t i = 0; i < vocabulary * width; ++i) {
      out(args, O::kDtable)[i] = in(args, O::kAddend) ? in(args, O::kAddend)[i] : 0;
    }
    if (length > 0) std::fill_n(out(args, O::kDpositions), positions * width, 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) {
        const double dy = in(args, O::kDy)[r * width + i];
        out(args, O::kDtable)[tokens[r] * width + i] += dy;
        if (length > 0) out(args, O::kDpositions)[r % length * width + i] += dy;
      }
    }
  });
}

}  // namespace trireme::ops::reference
