#include "ops/attention.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

void check_attention(const Checker& c, const AttentionShape& shape, int qkv, int lengths, int y,
                     int saved) {
  c.rank(qkv, 3);
  c.rank(y, 3);
  c.at_least(1, {&shape.heads, 1}, "heads");
  c.at_least(1, {&shape.kv_heads, 1}, "kv_heads");
  if (shape.heads % shape.kv_heads != 0) {
    c.refuse(fmt::format("kv_heads must divide the {} heads, got {}", shape.heads, shape.kv_heads));
  }
  const Shape& x = c.shape(qkv);
  const int64_t slots = shape.heads + 2 * shape.kv_heads;
  if (x[2] % slots != 0) {
    c.refuse(
        fmt::format("the {} columns of qkv do not divide into {} queries, {} keys and {} values",
                    x[2], shape.heads, shape.kv_heads, shape.kv_heads));
  }
  c.is(y, {x[0], x[1], shape.heads * (x[2] / slots)});
  c.is(saved, {x[0], shape.heads, x[1]});
  c.is(lengths, {x[0]});
  if (c.present(lengths) && c.dtype(lengths) != DType::kI32) {
    c.refuse(fmt::format("lengths must be i32, got {}", name_of(c.dtype(lengths))));
  }
}

// Of one T x D by D x T product for each sample and head; half of the scores are masked if causal.
double product_flops(const AttentionShape& shape, const Shape& qkv) {
  const auto d = static_cast<double>(qkv[2] / (shape.heads + 2 * shape.kv_heads));
  const auto t = static_cast<double>(qkv[1]);
  const double keys = shape.causal ? (t + 1) / 2 : t;
  return 2 * static_cast<double>(qkv[0] * shape.heads) * t * keys * d;
}

}  // namespace

const OpInfo AttentionForward::kInfo{.name = "attention_forward",
                                     .args = {{"qkv", Use::kIn},
                                              {"lengths", Use::kIn, kOptional},
                                              {"y", Use::kOut},
                                              {"saved", Use::kOut, kOptional}}};
void AttentionForward::check(const Checker& c) const {
  check_attention(c, shape, kQkv, kLengths, kY, kSaved);
}
double AttentionForward::flops(Specs specs) const {
  return 2 * product_flops(shape, specs[kQkv].shape);
}

const OpInfo AttentionBackward::kInfo{.name = "attention_backward",
                                      .args = {{"qkv", Use::kIn},
                                               {"lengths", Use::kIn, kOptional},
                                               {"y", Use::kIn},
                                               {"saved", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"dqkv", Use::kOut}}};
void AttentionBackward::check(const Checker& c) const {
  check_attention(c, shape, kQkv, kLengths, kY, kSaved);
  c.is(kDy, c.shape(kY));
  c.is(kDqkv, c.shape(kQkv));
}
// The scores are computed again.
double AttentionBackward::flops(Specs specs) const {
  return 5 * product_flops(shape, specs[kQkv].shape);
}

}  // namespace trireme::ops
