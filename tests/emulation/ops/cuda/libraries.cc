// There are none to open: cudnn.cc and cublaslt.cc beside this file do without. Times on the
// emulated GPU mean nothing, so nothing is measured, and runs are repeated exactly.
#include "ops/cuda/libraries.h"

namespace trireme::ops::cuda {

std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions&) {
  return std::make_shared<Libraries>(Libraries{nullptr, nullptr,
                                               Tuner(device, "", "emulated cuDNN", false),
                                               Tuner(device, "", "emulated cuBLASLt", false)});
}

}  // namespace trireme::ops::cuda
