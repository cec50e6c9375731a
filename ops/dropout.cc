#include "ops/dropout.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

void check_dropout(const Checker& c, float rate, int x, int y) {
  if (!(rate >= 0 && rate < 1)) {
    c.refuse(fmt::format("rate must be at least 0 and below 1, got {}", rate));
  }
  c.is(y, c.shape(x));
}

}  // namespace

const OpInfo DropoutForward::kInfo{.name = "dropout_forward",
                                   .args = {{"x", Use::kIn}, {"state", Use::kIn}, {"y", Use::kOut}},
                                   .aliases = {{kY, kX}}};
void DropoutForward::check(const Checker& c) const { check_dropout(c, rate, kX, kY); }

const OpInfo DropoutBackward::kInfo{
    .name = "dropout_backward",
    .args = {{"dy", Use::kIn}, {"state", Use::kIn}, {"dx", Use::kOut}},
    .aliases = {{kDx, kDy}}};
void DropoutBackward::check(const Checker& c) const { check_dropout(c, rate, kDy, kDx); }

}  // namespace trireme::ops
