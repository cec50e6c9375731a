// Runs the threads of a kernel on fibers: a thread runs until it has to wait for others of its
// block or warp. The seed determines the order of threads and blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

namespace trireme::emulation {

struct Shape {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
};

// Calls `thread` once for every thread of every block. Throws std::runtime_error if threads
// synchronize in a way that is undefined on a GPU. Must not be called concurrently.
void run_kernel(const Shape& shape, const std::function<void()>& thread, uint64_t seed);

// The functions below are called by kernels.

// Waits for all threads of the block. Returns the number of threads whose predicate is not 0.
int sync_threads(bool predicate, const std::source_location& where);

// Returns the value of the lane `source` of the warp, or ~0 if it is not in `mask`.
uint64_t exchange(uint32_t mask, uint64_t value, uint32_t source,
                  const std::source_location& where);

// Returns the lanes of `mask` whose predicate is true.
uint32_t ballot(uint32_t mask, bool predicate, const std::source_location& where);

uint32_t lane();

// Returns the dynamic shared memory of the block, filled with 0xFF before each block.
void* dynamic_shared_memory();

}  // namespace trireme::emulation
