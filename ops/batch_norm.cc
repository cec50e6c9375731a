#include "ops/batch_norm.h"

namespace trireme::ops {

const OpInfo BatchNormStatistics::kInfo{
    .name = "batch_norm_statistics",
    .args = {{"x", Use::kIn}, {"state", Use::kIn}, {"sums", Use::kOut}}};
void BatchNormStatistics::check(const Checker& c) const { c.is(kSums, {2 * c.channels(kX) + 1}); }

const OpInfo BatchNormForward::kInfo{.name = "batch_norm_forward",
                                     .args = {{"x", Use::kIn},
                                              {"residual", Use::kIn, kOptional},
                                              {"gamma", Use::kIn},
                                              {"beta", Use::kIn},
                                              {"sums", Use::kIn, kOptional},
                                              {"state", Use::kIn},
                                              {"running mean", Use::kInOut, kOptional},
                                              {"running variance", Use::kInOut, kOptional},
                                              {"y", Use::kOut},
                                              {"saved", Use::kOut}}};
void BatchNormForward::check(const Checker& c) const {
  const int64_t n = c.channels(kX);
  c.is(kResidual, c.shape(kX));
  c.is(kGamma, {n});
  c.is(kBeta, {n});
  c.is(kSums, {2 * n + 1});
  c.is(kRunningMean, {n});
  c.is(kRunningVar, {n});
  c.is(kY, c.shape(kX));
  c.is(kSaved, {2 * n});
}

const OpInfo BatchNormInference::kInfo{.name = "batch_norm_inference",
                                       .args = {{"x", Use::kIn},
                                                {"residual", Use::kIn, kOptional},
                                                {"gamma", Use::kIn},
                                                {"beta", Use::kIn, kOptional},
                                                {"running mean", Use::kIn, kOptional},
                                                {"running variance", Use::kIn},
                                                {"y", Use::kOut}},
                                       .aliases = {{kY, kX}, {kY, kResidual}}};
void BatchNormInference::check(const Checker& c) const {
  const int64_t n = c.channels(kX);
  c.is(kResidual, c.shape(kX));
  c.is(kGamma, {n});
  c.is(kBeta, {n});
  c.is(kRunningMean, {n});
  c.is(kRunningVar, {n});
  c.is(kY, c.shape(kX));
}

const OpInfo BatchNormBackwardSums::kInfo{.name = "batch_norm_backward_sums",
                                          .args = {{"x", Use::kIn},
                                                   {"y", Use::kIn, kOptional},
                                                   {"dy", Use::kIn},
                                                   {"saved", Use::kIn},
                                                   {"state", Use::kIn},
                                                   {"sums", Use::kOut}}};
void BatchNormBackwardSums::check(const Checker& c) const {
  const int64_t n = c.channels(kX);
  if (relu) c.needs(kY, c.shape(kX));
  c.is(kDy, c.shape(kX));
  c.is(kSaved, {2 * n});
  c.is(kSums, {2 * n + 1});
}

const OpInfo BatchNormBackward::kInfo{.name = "batch_norm_backward",
                                      .args = {{"x", Use::kIn},
                                               {"y", Use::kIn, kOptional},
                                               {"dy", Use::kIn},
                                               {"gamma", Use::kIn},
                                               {"saved", Use::kIn},
                                               {"sums", Use::kIn, kOptional},
                                               {"state", Use::kIn},
                                               {"dx", Use::kOut},
                                               {"dresidual", Use::kOut, kOptional},
                                               {"dgamma", Use::kOut},
                                               {"dbeta", Use::kOut}},
                                      .aliases = {{kDx, kDy}, {kDresidual, kDy}}};
void BatchNormBackward::check(const Checker& c) const {
  const int64_t n = c.channels(kX);
  if (relu) c.needs(kY, c.shape(kX));
  c.is(kDy, c.shape(kX));
  c.is(kGamma, {n});
  c.is(kSaved, {2 * n});
  c.is(kSums, {2 * n + 1});
  c.is(kDx, c.shape(kX));
  c.is(kDresidual, c.shape(kX));
  c.is(kDgamma, {n});
  c.is(kDbeta, {n});
}

}  // namespace trireme::ops
