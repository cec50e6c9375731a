// The class token and the positions of a vision transformer (Dosovitskiy et al., arXiv:2010.11929),
// added to the features x [B, T, C] of the patches.
#pragma once

#include "ops/op_info.h"

namespace trireme::ops {

// y[b, 0] = token + positions[0] and y[b, t + 1] = x[b, t] + positions[t + 1], with token [C],
// positions [T + 1, C] and y [B, T + 1, C]. kPositions is optional.
struct ClassTokenForward {
  enum Arg { kX, kToken, kPositions, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

// dx[b, t] = dy[b, t + 1], dtoken = the sum of dy[b, 0] over b, and dpositions = the sum of dy[b]
// over b, each in the order of the samples. kDx and kDpositions are optional.
struct ClassTokenBackward {
  enum Arg { kDy, kDx, kDtoken, kDpositions, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

}  // namespace trireme::ops
