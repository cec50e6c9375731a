// What plans of this folder share.
#pragma once

#include <memory>

#include "core/cuda/cuda.h"
#include "ops/backend.h"

namespace trireme::ops::cuda {

class Libraries;  // libraries.h: handles of cuDNN and cuBLASLt

struct Context {
  Device& device;
  CudaOptions options;
  // Made with the backend; null only where tests need neither library.
  std::shared_ptr<Libraries> libraries;
};

}  // namespace trireme::ops::cuda
