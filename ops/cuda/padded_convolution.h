// Convolutions of tensors with few channels, such as images. Libraries are faster if a pixel takes
// 16 bytes, so channels of zeros are added in the workspace.
#pragma once

#include "ops/cuda/algorithm.h"
#include "ops/cuda/context.h"
#include "ops/cuda/convolution.h"

namespace trireme::ops::cuda {

// Returns the fastest algorithm for the convolution, with or without added channels. Throws
// Unsupported if there is none.
AlgorithmPtr find_convolution_or_padded(const Context& context, const Convolution& convolution);

}  // namespace trireme::ops::cuda
