// How benchmarks sum up what they measured.
#pragma once

#include <algorithm>
#include <vector>

namespace trireme::bench {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace trireme::bench
