// The rows of a loss that are labels of valid samples.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/vectorized.h"
#include "ops/step_state.h"

namespace trireme::ops {

// `count` rows of the micro-batch, from row `first` on. A sample has `per_sample` adjacent rows.
struct LossRows {
  int64_t count, per_sample = 1, first = 0;

  // Returns how many of the rows belong to valid samples. They precede the others.
  TRIREME_INLINE constexpr int64_t valid(const StepState& state) const {
    return std::clamp<int64_t>(state.valid_rows * per_sample - first, 0, count);
  }
  // Returns the number of valid samples that begin in these rows.
  TRIREME_INLINE constexpr int64_t valid_samples(const StepState& state) const {
    return samples_before(first + valid(state)) - samples_before(first);
  }

 private:
  TRIREME_INLINE constexpr int64_t samples_before(int64_t row) const {
    return (row + per_sample - 1) / per_sample;
  }
};

}  // namespace trireme::ops
