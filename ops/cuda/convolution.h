// A convolution as libraries compute it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "ops/conv2d.h"

namespace trireme::ops::cuda {

enum class ConvolutionPass { kForward, kBackwardData, kBackwardWeights };

// x, weight and y lie channels-last. Arguments: x, weight, y, bias.
struct Convolution {
  ConvolutionPass pass = ConvolutionPass::kForward;
  Conv2dGeometry geometry = {};
  Shape x, weight, y;
  DType in = DType::kF32;          // of both that are read
  DType out = DType::kF32;         // of the one that is written
  std::optional<DType> bias = {};  // added in a forward pass
  bool relu = false;               // ends a forward pass
  bool tf32 = false;               // f32 may be rounded to TF32
};

// The same only for the same work.
std::string key(const Convolution& convolution);
// Of each argument.
std::vector<size_t> bytes(const Convolution& convolution);

}  // namespace trireme::ops::cuda
