// Rotary position embeddings (Su et al., arXiv:2104.09864), with the pairs of GPT-NeoX and Llama:
// in the row at position t, elements i and i + D/2 of a head of D elements are rotated by the angle
// t * base^(-2i/D).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op_info.h"

namespace trireme::ops {

// x, y [rows, columns], where row r is at position r % length. The first `heads` * `head_dim`
// columns are heads and are rotated, the others are copied. y may be x. With kStarts, i32 [B], the
// rows are parts of B sequences, see RowPositions.
struct Rotary {
  enum Arg { kX, kStarts, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  int64_t length = 1;
  int64_t heads = 1;
  int64_t head_dim = 2;  // even
  double base = 10000;
  bool inverse = false;  // rotates by the negative angle, for the gradient
};

// Returns cos and sin of the angles, [length, head_dim / 2, 2]; if op.inverse, sin is negated.
std::vector<float> rotary_table(const Rotary& op);

}  // namespace trireme::ops
