// Causal attention of sequences that are read in parts, for generation with a key-value cache.
//
// qkv [B, T, (heads + 2 * kv_heads) * D], as in attention.h, has the next T rows of each sequence,
// at positions starts[b], starts[b] + 1, ... of it. Their keys and values are written to cache
// [B, positions, 2 * kv_heads * D], which has those of the rows before; then each row attends to
// the cache from position first_keys[b, t] up to its own. y [B, T, heads * D]. Rows at positions
// that the cache does not have are padding: they are not written, and give 0.
#pragma once

#include "ops/attention.h"

namespace trireme::ops {

// kStarts is i32 [B], not negative. kFirstKeys is i32 [B, T], from 0 to the position of the row;
// without it, all are 0.
struct CachedAttention {
  enum Arg { kQkv, kStarts, kFirstKeys, kCache, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  AttentionShape shape = {};  // causal
};

}  // namespace trireme::ops
