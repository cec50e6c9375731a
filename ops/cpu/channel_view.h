// ChannelView: a uniform view of row-major, channels-last and blocked activations, for loops that
// work channel by channel.
//
// Channels are divided into groups of 1, 8 or 16. One group of one row (sample) is a Run, a
// sequence of vectors of 16 elements: `full` vectors, `stride` elements apart, then `partial`
// vectors with `width` valid elements each. Lane l of every vector belongs to channel first_channel
// + l % per_group, so per-channel values are spread over lanes once and used for all vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "ops/cpu/simd.h"

namespace trireme::ops::cpu {

struct Run {
  int64_t rows = 0;
  int64_t row_stride = 0;
  int64_t offset = 0;  // offset of the group within a row
  int64_t full = 0;
  int64_t stride = 0;
  int64_t partial = 0;
  int64_t partial_offset = 0;
  int width = 0;
};

struct ChannelView {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t spatial = 0;
  int64_t per_group = 1;  // 1, 8 or 16
  int64_t groups = 0;
  int64_t stored = 0;      // channels in memory, including padding
  bool contiguous = true;  // a group of a row is contiguous in memory

  // Returns the view, or nullopt if the layout is not supported or not chosen yet.
  static std::optional<ChannelView> of(const TensorSpec& spec);
  // Returns the layout closest to that of `spec` that has a view.
  static Layout nearest(const TensorSpec& spec);

  int64_t row_stride() const { return stored * spatial; }
  Run run(int64_t group) const;

  // Sets lanes[l] to values[first_channel + l % per_group], or to `padding` beyond the last
  // channel.
  template <class T>
  void spread(const T* values, int64_t group, float* lanes, float padding = 0) const {
    for (int64_t l = 0; l < kLanes; ++l) {
      const int64_t c = group * per_group + l % per_group;
      lanes[l] = c < channels ? static_cast<float>(values[c]) : padding;
    }
  }
  // Returns the sum of the lanes that belong to channel first_channel + i.
  double gather(const double* lanes, int64_t i) const {
    double sum = 0;
    for (int64_t l = i; l < kLanes; l += per_group) sum += lanes[l];
    return sum;
  }
  int64_t channels_in(int64_t group) const {
    return std::min(per_group, channels - group * per_group);
  }
};

// Calls f(offset, lanes) for every vector of one row of a run.
template <class F>
TRIREME_INLINE inline void each_vector(const Run& shared, F f) {
  const Run run = shared;  // a copy that cannot alias stores
  for (int64_t i = 0; i < run.full; ++i) f(i * run.stride, AllLanes());
  for (int64_t i = 0; i < run.partial; ++i) {
    f(run.partial_offset + i * run.stride, SomeLanes{run.width});
  }
}

}  // namespace trireme::ops::cpu
