// Launches kernels on a stream. This header contains everything that a kernel file needs beyond
// CUDA C++ itself; tests/emulation has its own version of it to run the same files on a CPU.
#pragma once

#include <cstdint>
#include <utility>

#include "core/cuda/cuda.h"

namespace trireme::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // dynamic shared memory; above 48 KiB the launch opts the kernel in
};

// Queues kernel<<<grid>>>(args...). Throws DeviceError with `name` if that fails.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, Stream& stream,
            Arguments... arguments) {
  constexpr size_t kAlwaysAllowed = 48 << 10;
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaLaunchConfig_t config{};
  config.stream = handle(stream);  // first, because handle() selects the device for the calls below
  if (grid.shared_bytes > kAlwaysAllowed) {
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          name);
  }
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  [&](Parameters... converted) {
    void* table[] = {const_cast<void*>(static_cast<const void*>(&converted))..., nullptr};
    check(cudaLaunchKernelExC(&config, function, table), name);
  }(static_cast<Parameters>(arguments)...);
}

#ifdef __CUDACC__
// Returns the dynamic shared memory of the block.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}
#endif

}  // namespace trireme::cuda
