#include "comm/staged/pin.h"

#include "core/cuda/cuda.h"

namespace trireme::comm {

Buffer pin(const Buffer& memory, Device& device) {
  if (device.kind() == DeviceKind::kCpu || memory.bytes() == 0) return {};
  TRIREME_CUDA(cudaHostRegister(memory.data(), memory.bytes(), cudaHostRegisterPortable));
  return Buffer(memory.data(), memory.bytes(), [](void* data) { cudaHostUnregister(data); });
}

}  // namespace trireme::comm
