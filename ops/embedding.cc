#include "ops/embedding.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Requires i32 tokens [rows], as many as x [rows, C] has rows, and positions [T, C], if present,
// such that T divides the rows.
void check_tokens(const Checker& c, int tokens, int x, int positions) {
  c.rank(x, 2);
  const Shape& shape = c.shape(x);
  if (c.dtype(tokens) != DType::kI32) {
    c.refuse(fmt::format("tokens must be i32, got {}", name_of(c.dtype(tokens))));
  }
  c.is(tokens, {shape[0]});
  if (!c.present(positions)) return;
  c.rank(positions, 2);
  const int64_t length = c.shape(positions)[0];
  c.at_least(1, {&length, 1}, "the number of positions");
  c.is(positions, {length, shape[1]});
  if (shape[0] % length != 0) {
    c.refuse(fmt::format("{} rows are not a multiple of the {} positions", shape[0], length));
  }
}

}  // namespace

const OpInfo EmbeddingForward::kInfo{.name = "embedding_forward",
                                     .args = {{"tokens", Use::kIn},
                                              {"table", Use::kIn},
                                              {"positions", Use::kIn, kOptional},
                                              {"y", Use::kOut}}};
void EmbeddingForward::check(const Checker& c) const {
  check_tokens(c, kTokens, kY, kPositions);
  c.rank(kTable, 2);
  c.is(kTable, {c.shape(kTable)[0], c.shape(kY)[1]});
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
  c.rank(kDtable, 2);
  c.is(kDtable, {c.shape(kDtable)[0], c.shape(kDy)[1]});
  c.is(kAddend, c.shape(kDtable));
}

}  // namespace trireme::ops
