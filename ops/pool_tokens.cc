#include "ops/pool_tokens.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

void check_pool(const Checker& c, const TokenRange& range, int x, int lengths, int y) {
  c.rank(x, 3);
  const Shape& shape = c.shape(x);
  if (range.first < 0 || range.first >= shape[1] || range.count < 0) {
    c.refuse(fmt::format("{} tokens from {} on are not in a sequence of {}", range.count,
                         range.first, shape[1]));
  }
  c.is_i32(lengths, {shape[0]});
  c.is(y, {shape[0], shape[2]});
}

}  // namespace

const OpInfo PoolTokensForward::kInfo{
    .name = "pool_tokens_forward",
    .args = {{"x", Use::kIn}, {"lengths", Use::kIn, kOptional}, {"y", Use::kOut}}};
void PoolTokensForward::check(const Checker& c) const { check_pool(c, range, kX, kLengths, kY); }

const OpInfo PoolTokensBackward::kInfo{
    .name = "pool_tokens_backward",
    .args = {{"dy", Use::kIn}, {"lengths", Use::kIn, kOptional}, {"dx", Use::kOut}}};
void PoolTokensBackward::check(const Checker& c) const { check_pool(c, range, kDx, kLengths, kDy); }

}  // namespace trireme::ops
