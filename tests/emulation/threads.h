// The threads of a kernel, on fibers: a thread runs until it has to wait for others of its block or
// warp. Threads and blocks take turns in an order that the seed gives.
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

// Calls `thread` once for every thread of every block. Throws std::runtime_error when threads wait
// for each other in a way that is undefined on a GPU. One caller at a time.
void run_kernel(const Shape& shape, const std::function<void()>& thread, uint64_t seed);

// What follows is for kernels.

// The number of threads of the block whose predicate is not 0.
int sync_threads(bool predicate, const std::source_location& where);

// What the lane `source` of the warp gave; ~0 when it is none of `mask`.
uint64_t exchange(uint32_t mask, uint64_t value, uint32_t source,
                  const std::source_location& where);

// The lanes of `mask` whose predicate is true.
uint32_t ballot(uint32_t mask, bool predicate, const std::source_location& where);

uint32_t lane();

// Filled with 0xFF before each block.
void* dynamic_shared_memory();

}  // namespace trireme::emulation
