// Positions of the rows of an op in their sequences.
#pragma once

#include <cstdint>

#include "core/vectorized.h"
#include "ops/op_info.h"

namespace trireme::ops {

// Without `starts`, rows are whole sequences of `length` rows. With it, they are parts of
// sequences: `part` rows of each, at positions starts[i], starts[i] + 1, ... of sequence i; rows
// beyond the sequence are padding, at its last position.
struct RowPositions {
  const int32_t* starts;
  int64_t part;
  int64_t length;

  // Returns the position of a row.
  TRIREME_INLINE constexpr int64_t operator()(int64_t row) const {
    if (!starts) return row % length;
    const int64_t position = starts[row / part] + row % part;
    return position < length ? position : length - 1;
  }
};

// Returns the rows of each part; 0 if `starts` is absent.
int64_t part_rows(const TensorSpec& starts, int64_t rows);

// Throws Error unless the rows are whole sequences.
void check_whole_sequences(const Checker& c, int64_t rows, int64_t length);
// Throws Error unless the arg `starts` is i32 [B], where B divides the rows.
void check_parts(const Checker& c, int starts, int64_t rows);

}  // namespace trireme::ops
