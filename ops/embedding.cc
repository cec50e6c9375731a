#include "ops/embedding.h"

#include <fmt/format.h>

#include "ops/op.h"
#include "ops/row_positions.h"

namespace trireme::ops {
namespace {

// Requires i32 tokens [rows], as many as x [rows, C] has rows, and positions [T, C], if present.
void check_tokens(const Checker& c, int tokens, int x, int positions) {
  c.rank(x, 2);
  const Shape& shape = c.shape(x);
  c.is_i32(tokens, {shape[0]});
  if (!c.present(positions)) return;
  c.rank(positions, 2);
  const int64_t length = c.shape(positions)[0];
  c.at_least(1, {&length, 1}, "the number of positions");
  c.is(positions, {length, shape[1]});
}

// Requires rows of whole sequences, which are not longer than there are positions.
void check_length(const Checker& c, int64_t length, int64_t rows, int64_t positions) {
  if (length < 0 || length > positions) {
    c.refuse(fmt::format("sequences of {} rows have only {} positions", length, positions));
  }
  check_whole_sequences(c, rows, length > 0 ? length : positions);
}

}  // namespace

const OpInfo EmbeddingForward::kInfo{.name = "embedding_forward",
                                     .args = {{"tokens", Use::kIn},
                                              {"table", Use::kIn},
                                              {"positions", Use::kIn, kOptional},
                                              {"starts", Use::kIn, kOptional},
                                              {"y", Use::kOut}}};
void EmbeddingForward::check(const Checker& c) const {
  check_tokens(c, kTokens, kY, kPositions);
  c.rank(kTable, 2);
  c.is(kTable, {c.shape(kTable)[0], c.shape(kY)[1]});
  const int64_t rows = c.shape(kY)[0];
  if (c.present(kStarts)) {
    check_parts(c, kStarts, rows);
  } else if (c.present(kPositions)) {
    check_length(c, length, rows, c.shape(kPositions)[0]);
  }
}

const OpInfo EmbeddingBackward::kInfo{.name = "embedding_backward",
                                      .args = {{"tokens", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"addend", Use::kIn, kOptional},
                                               {"dtable", Use::kOut},
                                               {"dpositions", Use::kOut, kOptional}},
                                      .aliases = {{kDtable, kAddend}}};
void EmbeddingBackward::check(const Checker& c) const {
  check_tokens(c, kTokens, kDy, kDpositions);
  if (c.present(kDpositions)) {
    check_length(c, length, c.shape(kDy)[0], c.shape(kDpositions)[0]);
  }
  c.rank(kDtable, 2);
  c.is(kDtable, {c.shape(kDtable)[0], c.shape(kDy)[1]});
  c.is(kAddend, c.shape(kDtable));
}

int64_t sequence_length(int64_t length, const TensorSpec& positions, int64_t unset) {
  if (is_absent(positions)) return unset;
  return length > 0 ? length : positions.shape[0];
}

}  // namespace trireme::ops
