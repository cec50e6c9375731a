#include "ops/attention.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

void check_attention(const Checker& c, const AttentionShape& shape, int qkv, int lengths,
                     int first_keys, int y, int saved) {
  const int64_t dim = shape.head_dim(c, qkv);
  const Shape& x = c.shape(qkv);
  c.is(y, {x[0], x[1], shape.heads * dim});
  c.is(saved, {x[0], shape.heads, x[1]});
  c.is_i32(lengths, {x[0]});
  c.is_i32(first_keys, {x[0], x[1]});
  if (c.present(first_keys) && !shape.causal) c.refuse("first keys require causal attention");
}

// Of one T x D by D x T product for each sample and head; half of the scores are masked if causal.
double product_flops(const AttentionShape& shape, const Shape& qkv) {
  const auto d = static_cast<double>(qkv[2] / (shape.heads + 2 * shape.kv_heads));
  const auto t = static_cast<double>(qkv[1]);
  const double keys = shape.causal ? (t + 1) / 2 : t;
  return 2 * static_cast<double>(qkv[0] * shape.heads) * t * keys * d;
}

}  // namespace

int64_t AttentionShape::head_dim(const Checker& c, int qkv) const {
  c.rank(qkv, 3);
  c.at_least(1, {&heads, 1}, "heads");
  c.at_least(1, {&kv_heads, 1}, "kv_heads");
  if (heads % kv_heads != 0) {
    c.refuse(fmt::format("kv_heads must divide the {} heads, got {}", heads, kv_heads));
  }
  if (!(scale > 0)) c.refuse(fmt::format("the scale must be positive, got {}", scale));
  const int64_t columns = c.shape(qkv)[2], slots = heads + 2 * kv_heads;
  if (columns % slots != 0) {
    c.refuse(
        fmt::format("the {} columns of qkv do not divide into {} queries, {} keys and {} values",
                    columns, heads, kv_heads, kv_heads));
  }
  return columns / slots;
}

const OpInfo AttentionForward::kInfo{.name = "attention_forward",
                                     .args = {{"qkv", Use::kIn},
                                              {"lengths", Use::kIn, kOptional},
                                              {"first keys", Use::kIn, kOptional},
                                              {"y", Use::kOut},
                                              {"saved", Use::kOut, kOptional}}};
void AttentionForward::check(const Checker& c) const {
  check_attention(c, shape, kQkv, kLengths, kFirstKeys, kY, kSaved);
}
double AttentionForward::flops(Specs specs) const {
  return 2 * product_flops(shape, specs[kQkv].shape);
}

const OpInfo AttentionBackward::kInfo{.name = "attention_backward",
                                      .args = {{"qkv", Use::kIn},
                                               {"lengths", Use::kIn, kOptional},
                                               {"first keys", Use::kIn, kOptional},
                                               {"y", Use::kIn},
                                               {"saved", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"dqkv", Use::kOut}}};
void AttentionBackward::check(const Checker& c) const {
  check_attention(c, shape, kQkv, kLengths, kFirstKeys, kY, kSaved);
  c.is(kDy, c.shape(kY));
  c.is(kDqkv, c.shape(kQkv));
}
// The scores are computed again.
double AttentionBackward::flops(Specs specs) const {
  return 5 * product_flops(shape, specs[kQkv].shape);
}

}  // namespace trireme::ops
