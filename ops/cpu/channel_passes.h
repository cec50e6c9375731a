// The passes over activations that make up normalization ops: sums per channel, and elementwise
// functions with coefficients per channel. Each pass processes one group of a ChannelView.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "ops/cpu/channel_view.h"
#include "ops/op.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {

struct alignas(64) Lanes {
  float values[kLanes];
  TRIREME_INLINE F16 vector() const { return load(values, AllLanes()); }
};

struct LanePairSums {
  double first[kLanes];
  double second[kLanes];
};

constexpr float kNoFloor = -std::numeric_limits<float>::infinity();

// y = max((x - mean) * scale + shift, floor)
struct Normalization {
  Lanes mean{}, scale{}, shift{};
  float floor = kNoFloor;  // 0 with a ReLU
};

// dx = scale * (factor * g - shift - (x - mean) * slope)
struct Gradient {
  Lanes mean, factor, shift, slope, scale;
};

// Prefetch distance in elements of the passes that read from memory, not from cache.
constexpr int64_t kAhead = 512;

// Computes the sums of x and of x^2.
template <class T>
TRIREME_VECTORIZED static void sum_moments(const T* x, const Run& run, int64_t rows,
                                           LanePairSums& out) {
  LaneSums sum, squares;
  for (int64_t n = 0; n < rows; ++n) {
    const T* row = x + run.offset + n * run.row_stride;
    each_vector(run, [&](int64_t at, auto lanes) TRIREME_INLINE {
      __builtin_prefetch(row + at + kAhead);
      const F16 v = load(row + at, lanes);
      sum.add(v);
      squares.add_product(v, v);
    });
  }
  sum.store_to(out.first);
  squares.store_to(out.second);
}

template <class T, bool kResidual>
TRIREME_VECTORIZED static void normalize(const T* x, const T* residual, T* y, const Run& run,
                                         const Normalization& c) {
  const F16 mean = c.mean.vector(), scale = c.scale.vector(), shift = c.shift.vector();
  const F16 floor = F16{} + c.floor;
  for (int64_t n = 0; n < run.rows; ++n) {
    const int64_t row = run.offset + n * run.row_stride;
    each_vector(run, [&](int64_t at, auto lanes) TRIREME_INLINE {
      F16 v = (load(x + row + at, lanes) - mean) * scale + shift;
      if constexpr (kResidual) v += load(residual + row + at, lanes);
      store(y + row + at, where(v < floor, floor, v), lanes);  // preserves NaN
    });
  }
}

// Computes the sums of g and of g * (x - mean). If kWrite, also writes g to `g_out`, so that the
// second pass reads less.
template <class T, bool kRelu, bool kWrite>
TRIREME_VECTORIZED static void sum_gradients(const T* x, const T* y, const T* dy, T* g_out,
                                             const Run& run, int64_t rows, const Lanes& mean_lanes,
                                             LanePairSums& out) {
  const F16 mean = mean_lanes.vector();
  LaneSums sum, products;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t row = run.offset + n * run.row_stride;
    each_vector(run, [&](int64_t at, auto lanes) TRIREME_INLINE {
      __builtin_prefetch(x + row + at + kAhead);
      __builtin_prefetch(dy + row + at + kAhead);
      if constexpr (kRelu) __builtin_prefetch(y + row + at + kAhead);
      F16 g = load(dy + row + at, lanes);
      if constexpr (kRelu) g = where(load(y + row + at, lanes) > 0, g, F16{});
      if constexpr (kWrite) store(g_out + row + at, g, lanes);
      sum.add(g);
      products.add_product(g, load(x + row + at, lanes) - mean);
    });
  }
  sum.store_to(out.first);
  products.store_to(out.second);
}

template <class T>
TRIREME_VECTORIZED static void propagate(const T* x, const T* g, T* dx, const Run& run,
                                         int64_t rows, const Gradient& c) {
  const F16 mean = c.mean.vector(), factor = c.factor.vector(), scale = c.scale.vector();
  const F16 shift = c.shift.vector(), slope = c.slope.vector();
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t row = run.offset + n * run.row_stride;
    each_vector(run, [&](int64_t at, auto lanes) TRIREME_INLINE {
      const F16 centered = load(x + row + at, lanes) - mean;
      const F16 spread = factor * load(g + row + at, lanes) - shift - centered * slope;
      store(dx + row + at, scale * spread, lanes);
    });
  }
}

template <class T>
TRIREME_VECTORIZED static void clear_rows(T* to, const Run& run, int64_t first_row) {
  for (int64_t n = first_row; n < run.rows; ++n) {
    T* row = to + run.offset + n * run.row_stride;
    each_vector(run, [&](int64_t at, auto lanes) TRIREME_INLINE { store(row + at, F16{}, lanes); });
  }
}

// Returns the specs with all `activations` in the same layout, one that has a ChannelView: that of
// the first activation, if possible.
inline std::vector<TensorSpec> in_channel_view(std::span<const TensorSpec> specs,
                                               std::initializer_list<int> activations) {
  std::vector<TensorSpec> chosen(specs.begin(), specs.end());
  const Layout layout = ChannelView::nearest(specs[static_cast<size_t>(*activations.begin())]);
  for (TensorSpec& spec : chosen) {
    if (spec.layout.is_any()) spec.layout = Layout::row_major();
  }
  for (int i : activations) {
    TensorSpec& spec = chosen[static_cast<size_t>(i)];
    if (!is_absent(spec)) spec.layout = layout;
  }
  return chosen;
}

inline int64_t valid_rows(const void* state, int64_t rows) {
  return std::clamp<int64_t>(static_cast<const StepState*>(state)->valid_rows, 0, rows);
}

}  // namespace trireme::ops::cpu
