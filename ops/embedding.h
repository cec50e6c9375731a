// Embedding: looks up the rows of a table by token: tokens i32 [rows], table [V, C], y [rows, C].
// Rows of a sequence of length L follow one another, so row r is at position r % L of its sequence;
// learned positions [T, C] are optional. L is `length`, at most T, or T if it is 0.
//
// With kStarts, i32 [B], EmbeddingForward reads parts of B sequences, see RowPositions.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// y[r] = table[tokens[r]] + positions[position of r]. A token outside [0, V) is an Error on the
// CPU; on a GPU, whose kernels cannot throw, it makes its row NaN.
struct EmbeddingForward {
  enum Arg { kTokens, kTable, kPositions, kStarts, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  int64_t length = 0;
};

// dtable[v] = addend[v] + the sum of dy[r] over the rows r with token v, dpositions[t] = the sum of
// dy[r] over the rows at position t (0 from L on), each in the order of the rows. kAddend is
// optional: another gradient of a table that is also read elsewhere (tied weights). kDpositions is
// optional.
struct EmbeddingBackward {
  enum Arg { kTokens, kDy, kAddend, kDtable, kDpositions, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  int64_t length = 0;
};

// Returns the length L of the sequences, `unset` if there are no positions.
int64_t sequence_length(int64_t length, const TensorSpec& positions, int64_t unset);

}  // namespace trireme::ops
