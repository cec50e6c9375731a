#include "ops/cuda/convolution.h"

#include <fmt/format.h>

namespace trireme::ops::cuda {

std::string key(const Convolution& c) {
  constexpr const char* kPasses[] = {"forward", "backward data", "backward weights"};
  const Conv2dGeometry& g = c.geometry;
  return fmt::format(
      "{} x {} weight {} stride {}x{} padding {}x{} dilation {}x{} groups {} {} to {}{}{}{}",
      kPasses[static_cast<int>(c.pass)], c.x.to_string(), c.weight.to_string(), g.stride[0],
      g.stride[1], g.padding[0], g.padding[1], g.dilation[0], g.dilation[1], g.groups,
      name_of(c.in), name_of(c.out), c.bias ? fmt::format(" bias {}", name_of(*c.bias)) : "",
      c.relu ? " relu" : "", c.tf32 ? " tf32" : "");
}

std::vector<size_t> bytes(const Convolution& c) {
  const auto size = [&](const Shape& shape, ConvolutionPass written) {
    return static_cast<size_t>(shape.elements()) * size_of(c.pass == written ? c.out : c.in);
  };
  std::vector<size_t> sizes{size(c.x, ConvolutionPass::kBackwardData),
                            size(c.weight, ConvolutionPass::kBackwardWeights),
                            size(c.y, ConvolutionPass::kForward)};
  sizes.push_back(c.bias ? static_cast<size_t>(c.y[1]) * size_of(*c.bias) : 0);
  return sizes;
}

}  // namespace trireme::ops::cuda
