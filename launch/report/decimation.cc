#include "launch/report/decimation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace trireme::cli {

std::vector<Range> even_ranges(size_t count, size_t most) {
  const size_t ranges = std::min(count, most);
  std::vector<Range> all(ranges);
  for (size_t i = 0; i < ranges; ++i) {
    all[i] = {i * count / ranges, (i + 1) * count / ranges};
  }
  return all;
}

std::vector<size_t> points_to_keep(std::span<const double> values, size_t most) {
  std::vector<size_t> kept;
  if (values.size() <= most) {
    kept.resize(values.size());
    std::iota(kept.begin(), kept.end(), size_t{0});
    return kept;
  }
  const auto keep = [&](size_t index) {
    if (kept.empty() || kept.back() < index) kept.push_back(index);
  };
  keep(0);
  for (const Range& range : even_ranges(values.size(), most / 2 - 1)) {
    size_t low = range.begin;
    size_t high = range.begin;
    for (size_t i = range.begin; i < range.end; ++i) {
      if (values[i] < values[low] || std::isnan(values[low])) low = i;
      if (values[i] > values[high] || std::isnan(values[high])) high = i;
    }
    keep(std::min(low, high));
    keep(std::max(low, high));
  }
  keep(values.size() - 1);
  return kept;
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
