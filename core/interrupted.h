// Calls that a signal interrupted.
#pragma once

#include <cerrno>

namespace trireme {

// Repeats call() while it returns -1 with EINTR; returns what it returned last.
template <class F>
auto retry_interrupted(F call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace trireme
