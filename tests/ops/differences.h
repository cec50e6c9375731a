// Gradients by central differences of the reference backend.
#pragma once

#include <functional>
#include <vector>

#include "tests/ops/evaluate.h"

namespace trireme::ops {

// Returns d(objective)/d(x).
inline Tensor differences(Tensor& x, const std::function<double()>& objective) {
  constexpr double kStep = 1e-5;
  Tensor gradient = filled(x.spec.shape, 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    const double here = x[i];
    x[i] = here + kStep;
    const double above = objective();
    x[i] = here - kStep;
    const double below = objective();
    x[i] = here;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

// Returns d(sum(dy * y))/d(tensors[input]), where y is tensors[output] after the op.
inline Tensor differences(const Op& op, std::vector<Tensor>& tensors, int input, int output,
                          const Tensor& dy) {
  return differences(tensors[static_cast<size_t>(input)], [&] {
    evaluate(op, tensors);
    return dot(dy, tensors[static_cast<size_t>(output)]);
  });
}

}  // namespace trireme::ops
