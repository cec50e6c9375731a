#include "ops/conv2d.h"

#include <fmt/format.h>

#include "ops/window.h"

namespace trireme::ops {
namespace {

// Checks x, weight and y, or their gradients.
void check_convolution(const Checker& c, const Conv2dGeometry& g, int x, int weight, int y) {
  c.rank(x, 4);
  c.rank(weight, 4);
  c.at_least(1, g.stride, "stride");
  c.at_least(1, g.dilation, "dilation");
  c.at_least(0, g.padding, "padding");
  const Shape& in = c.shape(x);
  const Shape& w = c.shape(weight);
  if (g.groups < 1 || w[1] * g.groups != in[1] || w[0] % g.groups != 0) {
    c.refuse(fmt::format("{} {} in {} groups does not fit {} {}", c.name(weight), w.to_string(),
                         g.groups, c.name(x), in.to_string()));
  }
  check_windows(c, x, y, w[0], {w[2], w[3]}, g.stride, g.padding, g.dilation);
}

// Two operations for each weight and each output position (and image) that uses it.
double convolution_flops(const TensorSpec& weight, const TensorSpec& y) {
  const Shape& w = weight.shape;
  return 2 * static_cast<double>(y.shape.elements()) * static_cast<double>(w[1] * w[2] * w[3]);
}

}  // namespace

const OpInfo Conv2dForward::kInfo{
    .name = "conv2d_forward",
    .args = {
        {"x", Use::kIn}, {"weight", Use::kIn}, {"bias", Use::kIn, kOptional}, {"y", Use::kOut}}};
void Conv2dForward::check(const Checker& c) const {
  check_fused(c, activation);
  check_convolution(c, geometry, kX, kWeight, kY);
  c.is(kBias, {c.shape(kWeight)[0]});
}
double Conv2dForward::flops(Specs specs) const {
  return convolution_flops(specs[kWeight], specs[kY]);
}

const OpInfo Conv2dBackwardData::kInfo{
    .name = "conv2d_backward_data",
    .args = {{"dy", Use::kIn}, {"weight", Use::kIn}, {"dx", Use::kOut}}};
void Conv2dBackwardData::check(const Checker& c) const {
  check_convolution(c, geometry, kDx, kWeight, kDy);
}
double Conv2dBackwardData::flops(Specs specs) const {
  return convolution_flops(specs[kWeight], specs[kDy]);
}

const OpInfo Conv2dBackwardWeights::kInfo{.name = "conv2d_backward_weights",
                                          .args = {{"x", Use::kIn},
                                                   {"dy", Use::kIn},
                                                   {"dweight", Use::kOut},
                                                   {"dbias", Use::kOut, kOptional}}};
void Conv2dBackwardWeights::check(const Checker& c) const {
  check_convolution(c, geometry, kX, kDweight, kDy);
  c.is(kDbias, {c.shape(kDweight)[0]});
}
double Conv2dBackwardWeights::flops(Specs specs) const {
  return convolution_flops(specs[kDweight], specs[kDy]);
}

}  // namespace trireme::ops
