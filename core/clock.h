// Times in seconds.
#pragma once

#include <chrono>

namespace trireme {

inline double to_seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return to_seconds(std::chrono::steady_clock::now() - start);
}

// Since 1970, UTC.
inline double unix_seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace trireme
