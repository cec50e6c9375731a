// cuDNN and cuBLASLt, loaded when a backend is made.
#pragma once

#include <memory>

#include "ops/backend.h"

namespace trireme::cuda {

class Libraries;

// Throws DeviceError naming what cannot be loaded, and where it was looked for.
std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions& options);

}  // namespace trireme::cuda
