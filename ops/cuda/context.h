// State shared by the plans of the CUDA backend.
#pragma once

#include <memory>

#include "core/cuda/cuda.h"
#include "ops/backend.h"

namespace trireme::ops::cuda {

class Libraries;  // libraries.h: handles of cuDNN and cuBLASLt

struct Context {
  Device& device;
  CudaOptions options;
  // Created with the backend; null only in tests that do not need the libraries.
  std::shared_ptr<Libraries> libraries;
};

}  // namespace trireme::ops::cuda
