// No libraries are loaded, because cudnn.cc and cublaslt.cc in this folder do not need any. Times
// on the emulated GPU are meaningless, so nothing is measured, which also makes runs reproducible.
#include "ops/cuda/libraries.h"

namespace trireme::ops::cuda {

std::shared_ptr<Libraries> open_libraries(Device& device, const CudaOptions&) {
  return std::make_shared<Libraries>(Libraries{nullptr, nullptr,
                                               Tuner(device, "", "emulated cuDNN", false),
                                               Tuner(device, "", "emulated cuBLASLt", false)});
}

}  // namespace trireme::ops::cuda
