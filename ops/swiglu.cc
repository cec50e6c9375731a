#include "ops/swiglu.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Requires x [rows, 2F] and y [rows, F].
void check_halves(const Checker& c, int x, int y) {
  c.rank(x, 2);
  const int64_t columns = c.shape(x)[1];
  if (columns % 2 != 0)
    c.refuse(fmt::format("x must have an even number of columns, got {}", columns));
  c.is(y, {c.shape(x)[0], columns / 2});
}

}  // namespace

const OpInfo SwigluForward::kInfo{.name = "swiglu_forward",
                                  .args = {{"x", Use::kIn}, {"y", Use::kOut}}};
void SwigluForward::check(const Checker& c) const { check_halves(c, kX, kY); }

const OpInfo SwigluBackward::kInfo{.name = "swiglu_backward",
                                   .args = {{"x", Use::kIn}, {"dy", Use::kIn}, {"dx", Use::kOut}},
                                   .aliases = {{kDx, kX}}};
void SwigluBackward::check(const Checker& c) const {
  check_halves(c, kX, kDy);
  c.is(kDx, c.shape(kX));
}

}  // namespace trireme::ops
