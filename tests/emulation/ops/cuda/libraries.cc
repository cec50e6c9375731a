// There are none to open: cudnn.cc and cublaslt.cc beside this file do without.
#include "ops/cuda/libraries.h"

namespace trireme::cuda {

std::shared_ptr<Libraries> open_libraries(Device&, const CudaOptions&) { return nullptr; }

}  // namespace trireme::cuda
