// Multi-head scaled dot-product attention (Vaswani et al., arXiv:1706.03762) and, if kv_heads <
// heads, grouped-query attention (Ainslie et al., arXiv:2305.13245).
//
// qkv [B, T, (heads + 2 * kv_heads) * D] holds in each row the queries of all heads, then the keys,
// then the values of all kv_heads; head h reads keys and values of kv head h * kv_heads / heads.
// For each sample and head:
//   y = softmax(scale * q k^T + mask) v
// The mask keeps key j for query i if first_keys[sample, i] <= j < lengths[sample] and, if causal,
// j <= i. Queries at or beyond the length of their sample give 0. y [B, T, heads * D]. The T x T
// scores are never stored.
#pragma once

#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

struct AttentionShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads
  bool causal = false;
  float scale = 1;  // positive, usually 1 / sqrt(D)

  // Returns D. Throws Error unless the arg `qkv` holds rows of these heads and the
  // scale is positive.
  int64_t head_dim(const Checker& c, int qkv) const;
};

// kLengths i32 [B], from 0 to T, is optional: without it, all samples have T rows. kFirstKeys
// i32 [B, T] is optional and requires `causal`: first_keys[sample, i] is from 0 to i and does not
// decrease with i; without it, all are 0. kSaved [B, heads, T], the log-sum-exp of the masked
// scores of each query, is absent in inference.
struct AttentionForward {
  enum Arg { kQkv, kLengths, kFirstKeys, kY, kSaved, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;  // as if neither lengths nor first keys were given

  AttentionShape shape = {};
};

// Computes dqkv from dy. kY and kSaved are those of the forward pass.
struct AttentionBackward {
  enum Arg { kQkv, kLengths, kFirstKeys, kY, kSaved, kDy, kDqkv, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  AttentionShape shape = {};
};

}  // namespace trireme::ops
