// Launches kernels on a stream of the emulated GPU; replaces the header of the same name.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>

#include "core/cuda/cuda.h"
#include "emulation.h"
#include "threads.h"

namespace trireme::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
};

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), const Grid& grid, Stream& stream,
            Arguments... arguments) {
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  check(emulation::launch(name, {grid.blocks, grid.threads, grid.shared_bytes}, handle(stream),
                          [kernel, values] { std::apply(kernel, values); }),
        name);
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared_memory());
}

}  // namespace trireme::cuda
