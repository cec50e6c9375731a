// Description of a convolution for libraries.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "ops/conv2d.h"

namespace trireme::ops::cuda {

enum class ConvolutionPass { kForward, kBackwardData, kBackwardWeights };

// x, weight and y are channels-last. Arguments of its algorithms: x, weight, y, bias.
struct Convolution {
  ConvolutionPass pass = ConvolutionPass::kForward;
  Conv2dGeometry geometry = {};
  Shape x, weight, y;
  DType in = DType::kF32;          // dtype of both inputs
  DType out = DType::kF32;         // dtype of the output
  std::optional<DType> bias = {};  // added in a forward pass
  bool relu = false;               // applied at the end of a forward pass
  bool tf32 = false;               // f32 may be rounded to TF32
};

// Returns a string that identifies the convolution.
std::string key(const Convolution& convolution);
// Returns the size of each argument in bytes.
std::vector<size_t> bytes(const Convolution& convolution);

}  // namespace trireme::ops::cuda
