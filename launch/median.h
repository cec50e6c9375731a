#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace trireme::cli {

// Returns the median of at least one value: of an even number, the midpoint of the middle two.
template <class T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return std::midpoint(*std::max_element(values.begin(), middle), *middle);
}

}  // namespace trireme::cli
