// Parallel loops over the threads of the CPU device (see create_cpu_device). The partition depends
// on the number of threads. To keep results independent of it, a body must not accumulate across
// the indices of its part.
#pragma once

#include <cstdint>
#include <type_traits>

namespace trireme {

namespace internal {
void run_parallel(int64_t count, void (*body)(void*, int64_t, int64_t), void* context);
}  // namespace internal

// Calls body(begin, end) concurrently on disjoint ranges that cover [0, count). Returns when all
// calls have returned. Nested calls run sequentially in the calling thread.
template <class Body>
void parallel_for(int64_t count, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  internal::run_parallel(
      count,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<Plain*>(context))(begin, end);
      },
      const_cast<std::remove_const_t<Plain>*>(&body));
}

}  // namespace trireme
