#include "ops/activation.h"

#include <fmt/format.h>

namespace trireme::ops {

void check_fused(const Checker& c, Activation activation) {
  if (activation == Activation::kNone || derivative_uses_output(activation)) return;
  c.refuse(
      fmt::format("cannot fuse {}, because its derivative needs its input", name_of(activation)));
}

const OpInfo ActivationForward::kInfo{.name = "activation_forward",
                                      .args = {{"x", Use::kIn}, {"y", Use::kOut}},
                                      .aliases = {{kY, kX}}};
void ActivationForward::check(const Checker& c) const { c.is(kY, c.shape(kX)); }

const OpInfo ActivationBackward::kInfo{
    .name = "activation_backward",
    .args = {{"saved", Use::kIn}, {"dy", Use::kIn}, {"dx", Use::kOut}},
    .aliases = {{kDx, kDy}}};
void ActivationBackward::check(const Checker& c) const {
  c.is(kDy, c.shape(kSaved));
  c.is(kDx, c.shape(kSaved));
}

}  // namespace trireme::ops
