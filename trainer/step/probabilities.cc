#include "trainer/step/probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::train {

std::vector<double> softmax(std::span<const float> logits) {
  const double largest_logit = double{*std::ranges::max_element(logits)};
  std::vector<double> probabilities;
  for (const float logit : logits) probabilities.push_back(std::exp(double{logit} - largest_logit));
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= sum;
  return probabilities;
}

std::vector<int> top_k(std::span<const float> values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min(count, static_cast<int>(order.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](int a, int b) {
    const float x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    if (std::isnan(x) || std::isnan(y))
      return std::isnan(x) == std::isnan(y) ? a < b : !std::isnan(x);
    return x > y || (x == y && a < b);
  });
  order.erase(end, order.end());
  return order;
}

}  // namespace trireme::train
