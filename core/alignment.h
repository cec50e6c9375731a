// How memory of a device is aligned.
#pragma once

#include <cstddef>

namespace trireme {

// In bytes, of what Device::allocate returns and of the scratch memory of plans: cudaMalloc's.
// Algorithms of CUDA's libraries are measured with workspaces that are so aligned.
inline constexpr size_t kDeviceAlignment = 256;

// The least multiple of it that holds so many bytes.
constexpr size_t device_aligned(size_t bytes) {
  return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
}

}  // namespace trireme
