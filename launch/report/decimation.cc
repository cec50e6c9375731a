#include "launch/report/decimation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace trireme::cli {

std::vector<Range> even_ranges(size_t count, size_t max_ranges) {
  const size_t ranges = std::min(count, max_ranges);
  std::vector<Range> all(ranges);
  for (size_t i = 0; i < ranges; ++i) {
    all[i] = {i * count / ranges, (i + 1) * count / ranges};
  }
  return all;
}

std::vector<size_t> points_to_draw(std::span<const double> values, size_t max_points) {
  std::vector<size_t> indices;
  if (values.size() <= max_points) {
    indices.resize(values.size());
    std::iota(indices.begin(), indices.end(), size_t{0});
    return indices;
  }
  const auto add = [&](size_t index) {
    if (indices.empty() || indices.back() < index) indices.push_back(index);
  };
  add(0);
  for (const Range& range : even_ranges(values.size(), max_points / 2 - 1)) {
    size_t low = range.begin;
    size_t high = range.begin;
    for (size_t i = range.begin; i < range.end; ++i) {
      if (values[i] < values[low] || std::isnan(values[low])) low = i;
      if (values[i] > values[high] || std::isnan(values[high])) high = i;
    }
    add(std::min(low, high));
    add(std::max(low, high));
  }
  add(values.size() - 1);
  return indices;
}

double weighted_mean(std::span<const double> values, std::span<const double> weights) {
  double sum = 0;
  double weight = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || !(weights[i] > 0)) continue;
    sum += values[i] * weights[i];
    weight += weights[i];
  }
  return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace trireme::cli
