#include "ops/dense.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Checks x, weight and y, or their gradients.
void check_dense(const Checker& c, int x, int weight, int y) {
  c.rank(x, 2);
  c.rank(weight, 2);
  const Shape &in = c.shape(x), &w = c.shape(weight);
  if (w[1] != in[1]) {
    c.refuse(fmt::format("{} {} does not fit {} {}", c.name(weight), w.to_string(), c.name(x),
                         in.to_string()));
  }
  c.is(y, {in[0], w[0]});
}

double dense_flops(const TensorSpec& weight, const TensorSpec& y) {
  return 2 * static_cast<double>(y.shape.elements()) * static_cast<double>(weight.shape[1]);
}

}  // namespace

const OpInfo DenseForward::kInfo{.name = "dense_forward",
                                 .args = {{"x", Use::kIn},
                                          {"weight", Use::kIn},
                                          {"bias", Use::kIn, kOptional},
                                          {"y", Use::kOut},
                                          {"z", Use::kOut, kOptional}}};
void DenseForward::check(const Checker& c) const {
  check_dense(c, kX, kWeight, kY);
  c.is(kBias, {c.shape(kWeight)[0]});
  c.is(kZ, c.shape(kY));
  if (c.present(kZ) && activation == Activation::kNone) {
    c.refuse("without an activation, z is y");
  }
}
double DenseForward::flops(Specs specs) const { return dense_flops(specs[kWeight], specs[kY]); }

const OpInfo DenseBackwardData::kInfo{
    .name = "dense_backward_data",
    .args = {
        {"dy", Use::kIn}, {"weight", Use::kIn}, {"dx", Use::kOut}, {"saved", Use::kIn, kOptional}}};
void DenseBackwardData::check(const Checker& c) const {
  check_dense(c, kDx, kWeight, kDy);
  c.is(kSaved, c.shape(kDx));
  if (c.present(kSaved) != (activation != Activation::kNone)) {
    c.refuse("takes the saved tensor of an activation, and only of one");
  }
}
double DenseBackwardData::flops(Specs specs) const {
  return dense_flops(specs[kWeight], specs[kDy]);
}

const OpInfo DenseBackwardWeights::kInfo{.name = "dense_backward_weights",
                                         .args = {{"x", Use::kIn},
                                                  {"dy", Use::kIn},
                                                  {"dweight", Use::kOut},
                                                  {"dbias", Use::kOut, kOptional}}};
void DenseBackwardWeights::check(const Checker& c) const {
  check_dense(c, kX, kDweight, kDy);
  c.is(kDbias, {c.shape(kDweight)[0]});
  if (accumulate && c.dtype(kDweight) == DType::kBF16) {
    c.refuse("adds to gradients in f32, not in bf16");
  }
}
double DenseBackwardWeights::flops(Specs specs) const {
  return dense_flops(specs[kDweight], specs[kDy]);
}

}  // namespace trireme::ops
