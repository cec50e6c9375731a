#include "ops/group_norm.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Returns the number of channels of x. Throws Error if it is not divisible by `groups`.
int64_t grouped_channels(const Checker& c, int x, int64_t groups) {
  const int64_t channels = c.channels(x);
  const Shape& shape = c.shape(x);
  c.at_least(1, {shape.begin(), shape.end()}, "the dimensions of x");
  c.at_least(1, {&groups, 1}, "groups");
  if (channels % groups != 0) {
    c.refuse(fmt::format("the {} channels of x {} are not divisible into {} groups", channels,
                         shape.to_string(), groups));
  }
  return channels;
}

void both_or_none(const Checker& c, int a, int b) {
  if (c.present(a) != c.present(b)) {
    c.refuse(fmt::format("{} is present without {}", c.name(c.present(a) ? a : b),
                         c.name(c.present(a) ? b : a)));
  }
}

}  // namespace

const OpInfo GroupNormForward::kInfo{.name = "group_norm_forward",
                                     .args = {{"x", Use::kIn},
                                              {"gamma", Use::kIn, kOptional},
                                              {"beta", Use::kIn, kOptional},
                                              {"y", Use::kOut},
                                              {"saved", Use::kOut, kOptional}},
                                     .aliases = {{kY, kX}}};
void GroupNormForward::check(const Checker& c) const {
  const int64_t channels = grouped_channels(c, kX, groups);
  both_or_none(c, kGamma, kBeta);
  c.is(kGamma, {channels});
  c.is(kBeta, {channels});
  c.is(kY, c.shape(kX));
  c.is(kSaved, {c.shape(kX)[0], groups, 2});
}

const OpInfo GroupNormBackward::kInfo{.name = "group_norm_backward",
                                      .args = {{"x", Use::kIn},
                                               {"dy", Use::kIn},
                                               {"gamma", Use::kIn, kOptional},
                                               {"saved", Use::kIn},
                                               {"state", Use::kIn},
                                               {"dx", Use::kOut},
                                               {"dgamma", Use::kOut, kOptional},
                                               {"dbeta", Use::kOut, kOptional}},
                                      .aliases = {{kDx, kDy}}};
void GroupNormBackward::check(const Checker& c) const {
  const int64_t channels = grouped_channels(c, kX, groups);
  both_or_none(c, kDgamma, kDbeta);
  c.is(kDy, c.shape(kX));
  c.is(kGamma, {channels});
  c.is(kSaved, {c.shape(kX)[0], groups, 2});
  c.is(kDx, c.shape(kX));
  c.is(kDgamma, {channels});
  c.is(kDbeta, {channels});
}

}  // namespace trireme::ops
