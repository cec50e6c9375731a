// Alignment of device memory.
#pragma once

#include <cstddef>

namespace trireme {

// Alignment in bytes of the memory that Device::allocate returns and of the scratch memory of
// plans; the same as that of cudaMalloc. The autotuner measures the algorithms of CUDA libraries
// with workspaces of this alignment.
inline constexpr size_t kDeviceAlignment = 256;

// Returns `bytes`, rounded up to a multiple of kDeviceAlignment.
constexpr size_t device_aligned(size_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

}  // namespace trireme
