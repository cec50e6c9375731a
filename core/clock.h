// Conversions of std::chrono times to seconds.
#pragma once

#include <chrono>

namespace trireme {

inline double to_seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return to_seconds(std::chrono::steady_clock::now() - start);
}

// Returns the Unix time: seconds since 1970-01-01 00:00 UTC.
inline double unix_seconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace trireme
