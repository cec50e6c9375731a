#include "ops/class_token.h"

namespace trireme::ops {
namespace {

// Requires whole [B, T + 1, C], patches [B, T, C], token [C] and positions [T + 1, C], if present.
void check_token(const Checker& c, int whole, int patches, int token, int positions) {
  c.rank(whole, 3);
  const Shape& shape = c.shape(whole);
  const int64_t tokens = shape[1];
  c.at_least(2, {&tokens, 1}, "the number of tokens");
  c.is(patches, {shape[0], shape[1] - 1, shape[2]});
  c.is(token, {shape[2]});
  c.is(positions, {shape[1], shape[2]});
}

}  // namespace

const OpInfo ClassTokenForward::kInfo{.name = "class_token_forward",
                                      .args = {{"x", Use::kIn},
                                               {"token", Use::kIn},
                                               {"positions", Use::kIn, kOptional},
                                               {"y", Use::kOut}}};
void ClassTokenForward::check(const Checker& c) const {
  check_token(c, kY, kX, kToken, kPositions);
}

const OpInfo ClassTokenBackward::kInfo{.name = "class_token_backward",
                                       .args = {{"dy", Use::kIn},
                                                {"dx", Use::kOut, kOptional},
                                                {"dtoken", Use::kOut},
                                                {"dpositions", Use::kOut, kOptional}}};
void ClassTokenBackward::check(const Checker& c) const {
  check_token(c, kDy, kDx, kDtoken, kDpositions);
}

}  // namespace trireme::ops
