// Stubs for programs built without CUDA.
#include "core/device.h"
#include "core/profile_range.h"

namespace trireme {

CudaSupport query_cuda() { return {.problem = "this program is built without CUDA"}; }

std::vector<LibraryStatus> cuda_libraries() { return {}; }

std::unique_ptr<Device> create_cuda_device(int) {
  throw DeviceError("create_cuda_device", query_cuda().problem);
}

ProfileRange::ProfileRange(const char*) {}
ProfileRange::~ProfileRange() {}

}  // namespace trireme
