#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {

Plan plan(const CachedAttention& op, Specs specs) {
  using O = CachedAttention;
  const Shape qkv = specs[O::kQkv].shape, cached = specs[O::kCache].shape;
  const int64_t heads = op.shape.heads, kv_heads = op.shape.kv_heads;
  const int64_t dim = cached[2] / (2 * kv_heads);
  return host_op(std::move(specs), [=](Args args, void*) {
    const auto* starts = pointer<const int32_t>(args, O::kStarts);
    const auto* first_keys = pointer<const int32_t>(args, O::kFirstKeys);
    double* y = out(args, O::kY);
    std::fill_n(y, qkv[0] * qkv[1] * heads * dim, 0.0);
    for (int64_t r = 0; r < qkv[0] * qkv[1]; ++r) {
      const int64_t sample = r / qkv[1], position = starts[sample] + r % qkv[1];
      if (position >= cached[1]) continue;
      const int64_t first = first_keys ? first_keys[r] : 0;
      const double* row = in(args, O::kQkv) + r * qkv[2];
      double* cache = out(args, O::kCache) + sample * cached[1] * cached[2];
      std::copy_n(row + heads * dim, cached[2], cache + position * cached[2]);
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t key = head * kv_heads / heads * dim, value = key + kv_heads * dim;
        std::vector<double> scores;
        for (int64_t j = first; j <= position; ++j) {
          double score = 0;
          for (int64_t d = 0; d < dim; ++d) {
            score += row[head * dim + d] * cache[j * cached[2] + key + d];
          }
          scores.push_back(double{op.shape.scale} * score);
        }
        const double largest = *std::ranges::max_element(scores);
        double sum = 0;
        for (double score : scores) sum += std::exp(score - largest);
        for (int64_t j = first; j <= position; ++j) {
          const double p = std::exp(scores[static_cast<size_t>(j - first)] - largest) / sum;
          for (int64_t d = 0; d < dim; ++d) {
            y[(r * heads + head) * dim + d] += p * cache[j * cached[2] + value + d];
          }
        }
      }
    }
  });
}

}  // namespace trireme::ops::reference
