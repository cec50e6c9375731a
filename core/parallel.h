// Loops over the threads of a CPU rank (see create_cpu_device). Which thread runs what depends on
// the number of threads; so that results do not, a body must not carry sums from one part into
// another.
#pragma once

#include <cstdint>
#include <type_traits>

namespace trireme {

namespace internal {
void run_parallel(int64_t count, void (*body)(void*, int64_t, int64_t), void* context);
}  // namespace internal

// Calls body(begin, end) on parts of [0, count), at once.
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
