#include "ops/cached_attention.h"

namespace trireme::ops {

const OpInfo CachedAttention::kInfo{.name = "cached_attention",
                                    .args = {{"qkv", Use::kIn},
                                             {"starts", Use::kIn},
                                             {"first keys", Use::kIn, kOptional},
                                             {"cache", Use::kInOut},
                                             {"y", Use::kOut}}};
void CachedAttention::check(const Checker& c) const {
  const int64_t dim = shape.head_dim(c, kQkv);
  if (!shape.causal) c.refuse("must be causal");
  c.rank(kCache, 3);
  const Shape& x = c.shape(kQkv);
  c.is_i32(kStarts, {x[0]});
  c.is_i32(kFirstKeys, {x[0], x[1]});
  c.is(kCache, {x[0], c.shape(kCache)[1], 2 * shape.kv_heads * dim});
  c.is(kY, {x[0], x[1], shape.heads * dim});
}

}  // namespace trireme::ops
