// cuDNN and cuBLASLt, loaded when a backend is made, and what was measured of them.
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
  Tuner convolutions;
  Tuner products;
};

// Throws DeviceError naming what cannot be loaded, and where it was looked for.
std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions& options);

}  // namespace trireme::ops::cuda
