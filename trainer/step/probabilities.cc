#include "trainer/step/probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::train {

std::vector<double> softmax(std::span<const float> logits) {
  const double most = double{*std::ranges::max_element(logits)};
  std::vector<double> shares;
  for (const float logit : logits) shares.push_back(std::exp(double{logit} - most));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

std::vector<int> largest(std::span<const float> numbers, int count) {
  std::vector<int> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min(count, static_cast<int>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) {
    const float x = numbers[static_cast<size_t>(a)], y = numbers[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y))
      return std::isnan(x) == std::isnan(y) ? a < b : !std::isnan(x);
    return x > y || (x == y && a < b);
  });
  order.erase(end, order.end());
  return order;
}

}  // namespace trireme::train
