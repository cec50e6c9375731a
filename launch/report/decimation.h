// Shortens long series for drawing without losing outliers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trireme::cli {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Splits [0, count) into at most `max_ranges` non-empty ranges of about the same length.
std::vector<Range> even_ranges(size_t count, size_t max_ranges);

// Returns the ascending indices of at most `max_points` points; requires max_points >= 4. Returns
// all indices if there are no more points. Otherwise returns the first and the last point, and the
// lowest and the highest point of each range, so that a spike of a single point is drawn. NaN is
// included only if a range has nothing else.
std::vector<size_t> points_to_draw(std::span<const double> values, size_t max_points);

// Returns the weighted mean of the finite values, or NaN if there are none.
double weighted_mean(std::span<const double> values, std::span<const double> weights);

}  // namespace trireme::cli
