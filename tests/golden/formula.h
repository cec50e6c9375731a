// Numbers that are a function of a name and an index, as the scripts in this folder compute them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::golden {

// Returns numbers in [0, 1).
inline std::vector<double> uniform(const std::string& name, int64_t count) {
  uint32_t state = 2166136261;
  for (const char byte : name) state = (state ^ static_cast<unsigned char>(byte)) * 16777619;
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761 + state;
    x = (x ^ x >> 16) * 0x7FEB352D;
    x = (x ^ x >> 15) * 0x846CA68B;
    numbers.push_back(std::ldexp(x ^ x >> 16, -32));
  }
  return numbers;
}

}  // namespace trireme::golden
