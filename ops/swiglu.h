// SwiGLU (Shazeer, arXiv:2002.05202): x [rows, 2F] holds the gate in its first F columns and the
// gated values in the others.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// y [rows, F] = silu(x[:, :F]) * x[:, F:], where silu(a) = a / (1 + e^-a).
struct SwigluForward {
  enum Arg { kX, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// Computes dx [rows, 2F] from dy [rows, F].
struct SwigluBackward {
  enum Arg { kX, kDy, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

}  // namespace trireme::ops
