// The mean of some tokens of each sequence x [B, T, C]: those at positions first <= t < end, where
// end = min(first + count, length of the sequence), or the length alone if count is 0.
//
// kLengths i32 [B], from 0 to T, is optional: without it, all sequences have T tokens. The mean of
// no tokens is 0.
#pragma once

#include <cstdint>

#include "core/vectorized.h"
#include "ops/op_info.h"

namespace trireme::ops {

struct TokenRange {
  int64_t first = 0;
  int64_t count = 0;  // 0: all from `first` on

  // Returns the end of the range in a sequence of this length; at least `first`.
  TRIREME_INLINE constexpr int64_t end(int64_t length) const {
    const int64_t wanted = count > 0 && first + count < length ? first + count : length;
    return wanted > first ? wanted : first;
  }
};

// y [B, C].
struct PoolTokensForward {
  enum Arg { kX, kLengths, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  TokenRange range = {};
};

// dx [B, T, C] = dy / the number of tokens in the range, and 0 at the others.
struct PoolTokensBackward {
  enum Arg { kDy, kLengths, kDx, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  TokenRange range = {};
};

}  // namespace trireme::ops
