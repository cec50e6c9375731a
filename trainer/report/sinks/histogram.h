// Histograms with eight buckets per octave, whose limits include the powers of two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::train {

struct Histogram {
  double min = 0;
  double max = 0;
  int64_t count = 0;  // number of finite values
  double sum = 0;
  double sum_of_squares = 0;
  // The upper ends of the buckets, ascending, and the number of values in each. The first and the
  // last bucket are not empty.
  std::vector<double> limits;
  std::vector<int64_t> counts;
};

// Ignores values that are not finite. Magnitudes below 2^-40 share one bucket per sign.
Histogram histogram_of(std::span<const float> values);

}  // namespace trireme::train
