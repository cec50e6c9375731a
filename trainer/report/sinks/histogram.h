// How values are spread: buckets of an eighth of an octave, exact at powers of two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::train {

struct Histogram {
  double min = 0;
  double max = 0;
  int64_t count = 0;  // of what is finite
  double sum = 0;
  double sum_of_squares = 0;
  // Upper ends, ascending, and how many values are in each; the first and the last have some.
  std::vector<double> limits;
  std::vector<int64_t> counts;
};

// Leaves out what is not finite. What is closer to zero than 2^-40 falls into one bucket on each
// side of it.
Histogram histogram_of(std::span<const float> values);

}  // namespace trireme::train
