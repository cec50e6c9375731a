// Retries system calls that were interrupted by a signal.
#pragma once

#include <cerrno>

namespace trireme {

// Calls call() until it does not fail with EINTR, and returns its last result.
template <class F>
auto retry_interrupted(F call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace trireme
