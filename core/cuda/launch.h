// Kernels on a stream. Everything that a kernel file needs beyond CUDA C++ itself is here, so that
// tests/emulation, which has its own version of this header, can run the same files on a CPU.
#pragma once

#include <cstdint>
#include <utility>

#include "core/cuda/cuda.h"

namespace trireme::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // of dynamic shared memory; above 48 KiB the kernel is opted in
};

// Queues kernel<<<grid>>>(args...). `name` is for messages.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, Stream& stream,
            Arguments... arguments) {
  constexpr size_t kAlwaysAllowed = 48 << 10;
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaLaunchConfig_t config{};
  config.stream = handle(stream);  // first: it says which device all of this is about
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
// The block's dynamic shared memory.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}
#endif

}  // namespace trireme::cuda
