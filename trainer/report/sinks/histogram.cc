#include "trainer/report/sinks/histogram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace trireme::train {
namespace {

// The key of a bucket is the exponent and the first three bits of the mantissa. Each sign has its
// own buckets.
constexpr int kShift = 20;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kKeys = 0x7F800000 >> kShift;  // the keys from here on are not finite
constexpr uint32_t kFirst = std::bit_cast<uint32_t>(0x1p-40F) >> kShift;  // below: almost zero

// Returns the smallest magnitude in a bucket.
double lower_end(uint32_t key) {
  if (key < kFirst) return 0;
  return key < kKeys ? std::bit_cast<float>(key << kShift) : 0x1p128;
}
double upper_end(uint32_t key) { return lower_end(std::max(key + 1, kFirst)); }

// Appends buckets to a histogram. Merges consecutive empty buckets and omits them at the ends.
class Buckets {
 public:
  explicit Buckets(Histogram& to) : to_(to) {}
  void add(double limit, int64_t count) {
    if (count == 0) {
      empty_until_ = limit;
      return;
    }
    if (empty_until_ > last_ && !to_.counts.empty()) push(empty_until_, 0);
    push(limit, count);
    last_ = limit;
  }

 private:
  void push(double limit, int64_t count) {
    to_.limits.push_back(limit);
    to_.counts.push_back(count);
  }
  Histogram& to_;
  double last_ = -std::numeric_limits<double>::infinity();
  double empty_until_ = last_;
};

}  // namespace

Histogram histogram_of(std::span<const float> values) {
  std::array<std::array<int64_t, kKeys>, 2> counts = {};  // of positive and of negative values
  Histogram histogram;
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t key = (bits & kMagnitude) >> kShift;
    if (key >= kKeys) continue;
    ++counts[bits >> 31][std::max(key, kFirst - 1)];
    low = std::min(low, value);
    high = std::max(high, value);
    histogram.sum += double{value};
    histogram.sum_of_squares += double{value} * double{value};
    ++histogram.count;
  }
  if (histogram.count == 0) return histogram;
  histogram.min = low;
  histogram.max = high;
  Buckets buckets(histogram);
  for (uint32_t key = kKeys; key-- >= kFirst;) {
    buckets.add(-lower_end(key), counts[1][key]);
  }
  for (uint32_t key = kFirst - 1; key < kKeys; ++key) {
    buckets.add(upper_end(key), counts[0][key]);
  }
  return histogram;
}

}  // namespace trireme::train
