// Alignment, mostly of memory.
#pragma once

#include <cstddef>
#include <type_traits>

namespace trireme {

// Alignment in bytes of the memory that Device::allocate returns and of the scratch memory of
// plans; the same as that of cudaMalloc. The autotuner measures the algorithms of CUDA libraries
// with workspaces of this alignment.
inline constexpr size_t kDeviceAlignment = 256;

// Returns the smallest multiple of `unit` that is at least `value`.
template <class T>
constexpr T round_up(T value, std::type_identity_t<T> unit) {
  return (value + unit - 1) / unit * unit;
}

// Returns `bytes`, rounded up to a multiple of kDeviceAlignment.
constexpr size_t device_aligned(size_t bytes) { return round_up(bytes, kDeviceAlignment); }

}  // namespace trireme
