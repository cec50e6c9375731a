// Series of any length made short enough to draw, with what stands out in them kept.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trireme::cli {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// [0, count) in at most `most` ranges of about the same length, none empty.
std::vector<Range> even_ranges(size_t count, size_t most);

// Indices of at most `most` points (at least 4), ascending: all where there are no more, else the
// first, the last, and of each range the lowest and the highest, so that a spike of one point
// stays. NaNs stay where a range holds nothing else.
std::vector<size_t> points_to_keep(std::span<const double> values, size_t most);

// Mean of the finite values, each of this weight; NaN where there are none.
double weighted_mean(std::span<const double> values, std::span<const double> weights);

}  // namespace trireme::cli
