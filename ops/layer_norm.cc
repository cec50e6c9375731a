#include "ops/layer_norm.h"

namespace trireme::ops {

const OpInfo LayerNormForward::kInfo{.name = "layer_norm_forward",
                                     .args = {{"x", Use::kIn},
                                              {"gamma", Use::kIn},
                                              {"beta", Use::kIn, kOptional},
                                              {"y", Use::kOut},
                                              {"saved", Use::kOut, kOptional}}};
void LayerNormForward::check(const Checker& c) const {
  c.rank(kX, 2);
  const Shape features{c.shape(kX)[1]};
  c.is(kGamma, features);
  c.is(kBeta, features);
  c.is(kY, c.shape(kX));
  c.is(kSaved, {c.shape(kX)[0], 2});
}

const OpInfo LayerNormBackward::kInfo{.name = "layer_norm_backward",
                                      .args = {{"x", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"gamma", Use::kIn},
                                               {"saved", Use::kIn},
                                               {"dx", Use::kOut},
                                               {"dgamma", Use::kOut},
                                               {"dbeta", Use::kOut, kOptional}},
                                      .aliases = {{kDx, kDy}}};
void LayerNormBackward::check(const Checker& c) const {
  c.rank(kX, 2);
  const Shape features{c.shape(kX)[1]};
  c.is(kDy, c.shape(kX));
  c.is(kGamma, features);
  c.is(kSaved, {c.shape(kX)[0], 2});
  c.is(kDx, c.shape(kX));
  c.is(kDgamma, features);
  c.is(kDbeta, features);
}

}  // namespace trireme::ops
