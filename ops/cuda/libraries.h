// The libraries of a CUDA backend, cuDNN and cuBLASLt, and their tuners.
#pragma once

#include <memory>

#include "ops/cuda/cublaslt.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/tuner.h"

namespace trireme::ops::cuda {

class Libraries {
 public:
  std::shared_ptr<Cudnn> cudnn;
  std::shared_ptr<CublasLt> cublaslt;
  Tuner engines;   // of cuDNN
  Tuner products;  // of cuBLASLt
};

// Loads the libraries. Throws DeviceError with the library and the searched folders if one cannot
// be loaded.
std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions& options);

}  // namespace trireme::ops::cuda
