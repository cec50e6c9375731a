// Stub for programs built without CUDA.
#include "ops/backend.h"

namespace trireme::ops {

std::unique_ptr<Backend> create_cuda_backend(Device&, const CudaOptions&) {
  throw DeviceError("create_cuda_backend", "this program is built without CUDA");
}

}  // namespace trireme::ops
