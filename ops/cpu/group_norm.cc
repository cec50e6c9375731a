// Group normalization. The work is divided into samples and spans of channels, so that the second
// pass over a span of a sample finds it in cache. A span contains whole groups of the op and, if
// adjacent elements belong to different channels, also whole groups of the ChannelView, which are
// called vectors here. If the values of a group are contiguous, a span is one group.
#include "ops/group_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/parallel.h"
#include "ops/cpu/channel_passes.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/row_passes.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

// Minimum number of parts of the backward pass. Independent of the number of threads, because the
// gradients of gamma and beta are summed part by part.
constexpr int64_t kParts = 64;

struct Groups {
  Groups(const ChannelView& channel_view, int64_t groups)
      : view(channel_view),
        count(groups),
        channels(view.channels / groups),
        span(std::min(std::lcm(channels, view.per_group), view.channels)),
        spans((view.channels + span - 1) / span),
        blocks(std::min(view.rows, (kParts + spans - 1) / spans)) {}

  // Returns true if each channel of a sample has one value (rows in memory).
  bool rows() const { return view.spatial == 1 && view.stored == view.channels; }
  // Returns true if the values of a channel are contiguous.
  bool planes() const { return view.per_group == 1; }
  double values() const { return static_cast<double>(channels * view.spatial); }
  int64_t first_vector(int64_t at) const { return at * span / view.per_group; }
  int64_t end_vector(int64_t at) const {
    return std::min(((at + 1) * span + view.per_group - 1) / view.per_group, view.groups);
  }
  int64_t first_group(int64_t at) const { return at * span / channels; }
  int64_t end_group(int64_t at) const { return std::min(first_group(at + 1), count); }

  ChannelView view;
  int64_t count;     // groups of a sample
  int64_t channels;  // channels of a group
  int64_t span;      // channels of a span
  int64_t spans;     // spans of a sample
  int64_t blocks;    // blocks of samples
};

// Values of the groups of a span.
template <class T>
using PerGroup = std::array<T, kLanes>;

// Calls f(lane, channel, group) for each channel of a vector.
template <class F>
void each_channel(const Groups& groups, int64_t vector, F f) {
  const int64_t first = vector * groups.view.per_group;
  int64_t group = first / groups.channels, at = first % groups.channels;
  for (int64_t i = 0; i < groups.view.channels_in(vector); ++i) {
    f(i, first + i, group);
    if (++at == groups.channels) at = 0, ++group;
  }
}

// With blocks of 8 channels, a vector of 16 lanes covers two positions.
template <class... L>
void repeat_lanes(const ChannelView& view, L&... lanes) {
  if (view.per_group == kLanes) return;
  (std::copy_n(lanes.values, view.per_group, lanes.values + view.per_group), ...);
}

Run row_of(const Run& run, int64_t row) {
  Run one = run;
  one.offset += row * run.row_stride;
  one.rows = 1;
  return one;
}

// gamma and beta of all channels; 1 and 0 if the op has none.
struct Affine {
  Affine(const TensorSpec& given, int64_t channels) {
    if (!is_absent(given)) return;
    ones.resize(static_cast<size_t>(channels), 1.0f);
    zeros.resize(static_cast<size_t>(channels), 0.0f);
  }
  const float* scale(const float* given) const { return given ? given : ones.data(); }
  const float* shift(const float* given) const { return given ? given : zeros.data(); }

  std::vector<float> ones, zeros;
};

struct GroupForward {
  const float *gamma, *beta;
  float epsilon;
  float* saved;  // null in inference
};

// Normalizes a group whose values are contiguous, `positions` per channel.
template <class T>
TRIREME_VECTORIZED static void normalize_planes(const T* x, T* y, int64_t channels,
                                                int64_t positions, const float* gamma,
                                                const float* beta, float epsilon, float* saved) {
  const RowStatistics row = row_statistics(x, channels * positions, epsilon);
  const float mean = row.mean, inv_std = row.inv_std;
  for (int64_t c = 0; c < channels; ++c) {
    const float scale = gamma[c] * inv_std, shift = beta[c];
    const T* const from = x + c * positions;
    T* const to = y + c * positions;
#pragma omp simd
    for (int64_t i = 0; i < positions; ++i) {
      to[i] = from_float<T>((to_float(from[i]) - mean) * scale + shift);
    }
  }
  if (saved) {
    saved[0] = mean;
    saved[1] = inv_std;
  }
}

template <class T>
void normalize_vectors(const Groups& groups, int64_t row, int64_t span, const T* x, T* y,
                       const GroupForward& a) {
  const ChannelView& view = groups.view;
  const int64_t first = groups.first_group(span);
  PerGroup<double> sums{}, squares{};
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    LanePairSums own;
    sum_moments(x, row_of(view.run(v), row), 1, own);
    each_channel(groups, v, [&](int64_t i, int64_t, int64_t group) {
      sums[group - first] += view.gather(own.first, i);
      squares[group - first] += view.gather(own.second, i);
    });
  }
  PerGroup<float> means{}, inv_stds{};
  for (int64_t g = first; g < groups.end_group(span); ++g) {
    const auto i = static_cast<size_t>(g - first);
    const double mean = sums[i] / groups.values();
    const double var = std::max(0.0, squares[i] / groups.values() - mean * mean);
    means[i] = static_cast<float>(mean);
    inv_stds[i] = static_cast<float>(1 / std::sqrt(var + a.epsilon));
    if (!a.saved) continue;
    a.saved[2 * (row * groups.count + g)] = means[i];
    a.saved[2 * (row * groups.count + g) + 1] = inv_stds[i];
  }
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Normalization c;
    each_channel(groups, v, [&](int64_t i, int64_t channel, int64_t group) {
      c.mean.values[i] = means[group - first];
      c.scale.values[i] = a.gamma[channel] * inv_stds[group - first];
      c.shift.values[i] = a.beta[channel];
    });
    repeat_lanes(view, c.mean, c.scale, c.shift);
    normalize<T, false>(x, nullptr, y, row_of(view.run(v), row), c);
  }
}

template <class T>
void normalize_groups(const Groups& groups, const T* x, T* y, const GroupForward& a) {
  parallel_for(groups.view.rows * groups.spans, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t row = part / groups.spans, span = part % groups.spans;
      if (!groups.planes()) {
        normalize_vectors(groups, row, span, x, y, a);
        continue;
      }
      const int64_t channel = span * groups.channels;
      const int64_t at = part * groups.channels * groups.view.spatial;
      normalize_planes(x + at, y + at, groups.channels, groups.view.spatial, a.gamma + channel,
                       a.beta + channel, a.epsilon, a.saved ? a.saved + 2 * part : nullptr);
    }
  });
}

struct GroupBackward {
  const float *gamma, *saved;
  double* sums;  // sums of dy and of dy * xhat: [blocks, 2, channels]
  int64_t valid;
};

// Computes dx of a group whose values are contiguous. Adds to dgamma and dbeta.
template <class T>
TRIREME_VECTORIZED static void propagate_planes(const T* x, const T* dy, T* dx, int64_t channels,
                                                int64_t positions, const float* gamma,
                                                const float* saved, double* dgamma, double* dbeta) {
  const float mean = saved[0], inv_std = saved[1];
  double sums = 0, products = 0;
  for (int64_t c = 0; c < channels; ++c) {
    const T* const xs = x + c * positions;
    const T* const dys = dy + c * positions;
    double sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (int64_t i = 0; i < positions; ++i) {
      const double g = to_float(dys[i]);
      sum += g;
      product += g * (to_float(xs[i]) - mean);
    }
    product *= inv_std;
    dbeta[c] += sum;
    dgamma[c] += product;
    sums += gamma[c] * sum;
    products += gamma[c] * product;
  }
  const auto values = static_cast<double>(channels * positions);
  const auto shift = static_cast<float>(sums / values);
  const auto slope = static_cast<float>(inv_std * products / values);
  for (int64_t c = 0; c < channels; ++c) {
    const T* const xs = x + c * positions;
    const T* const dys = dy + c * positions;
    T* const to = dx + c * positions;
    const float factor = gamma[c];
#pragma omp simd
    for (int64_t i = 0; i < positions; ++i) {
      const float spread = factor * to_float(dys[i]) - shift - (to_float(xs[i]) - mean) * slope;
      to[i] = from_float<T>(inv_std * spread);
    }
  }
}

template <class T>
void propagate_vectors(const Groups& groups, int64_t row, int64_t span, const T* x, const T* dy,
                       T* dx, const GroupBackward& a, double* dgamma, double* dbeta) {
  const ChannelView& view = groups.view;
  const int64_t first = groups.first_group(span);
  const float* const saved = a.saved + 2 * row * groups.count;  // statistics of this sample
  PerGroup<double> sums{}, products{};
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Lanes means{};
    LanePairSums own;
    each_channel(groups, v,
                 [&](int64_t i, int64_t, int64_t group) { means.values[i] = saved[2 * group]; });
    repeat_lanes(view, means);
    sum_gradients<T, false, false>(x, nullptr, dy, nullptr, row_of(view.run(v), row), 1, means,
                                   own);
    each_channel(groups, v, [&](int64_t i, int64_t channel, int64_t group) {
      const double sum = view.gather(own.first, i);
      const double product = view.gather(own.second, i) * saved[2 * group + 1];
      dbeta[channel] += sum;
      dgamma[channel] += product;
      sums[group - first] += a.gamma[channel] * sum;
      products[group - first] += a.gamma[channel] * product;
    });
  }
  PerGroup<float> shifts{}, slopes{};
  for (int64_t g = first; g < groups.end_group(span); ++g) {
    const auto i = static_cast<size_t>(g - first);
    shifts[i] = static_cast<float>(sums[i] / groups.values());
    slopes[i] = static_cast<float>(saved[2 * g + 1] * products[i] / groups.values());
  }
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Gradient c{};
    each_channel(groups, v, [&](int64_t i, int64_t channel, int64_t group) {
      c.mean.values[i] = saved[2 * group];
      c.factor.values[i] = a.gamma[channel];
      c.shift.values[i] = shifts[group - first];
      c.slope.values[i] = slopes[group - first];
      c.scale.values[i] = saved[2 * group + 1];
    });
    repeat_lanes(view, c.mean, c.factor, c.shift, c.slope, c.scale);
    propagate(x, dy, dx, row_of(view.run(v), row), 1, c);
  }
}

// Computes dx of any span; zero beyond the valid rows.
template <class T>
void propagate_span(const Groups& groups, int64_t row, int64_t span, const T* x, const T* dy, T* dx,
                    const GroupBackward& a, double* dgamma, double* dbeta) {
  if (row >= a.valid) {
    for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
      clear_rows(dx, row_of(groups.view.run(v), row), 0);
    }
  } else if (groups.planes()) {
    const int64_t group = row * groups.count + span, channel = span * groups.channels;
    const int64_t at = group * groups.channels * groups.view.spatial;
    propagate_planes(x + at, dy + at, dx + at, groups.channels, groups.view.spatial,
                     a.gamma + channel, a.saved + 2 * group, dgamma + channel, dbeta + channel);
  } else {
    propagate_vectors(groups, row, span, x, dy, dx, a, dgamma, dbeta);
  }
}

template <class T>
void propagate_groups(const Groups& groups, const T* x, const T* dy, T* dx,
                      const GroupBackward& a) {
  const ChannelView& view = groups.view;
  parallel_for(groups.blocks * groups.spans, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t block = part / groups.spans, span = part % groups.spans;
      double* const dbeta = a.sums + block * 2 * view.channels;
      double* const dgamma = dbeta + view.channels;
      const int64_t first = span * groups.span;
      const int64_t channels = std::min(groups.span, view.channels - first);
      std::fill_n(dbeta + first, channels, 0.0);
      std::fill_n(dgamma + first, channels, 0.0);
      const int64_t last_row = (block + 1) * view.rows / groups.blocks;
      for (int64_t row = block * view.rows / groups.blocks; row < last_row; ++row) {
        propagate_span(groups, row, span, x, dy, dx, a, dgamma, dbeta);
      }
    }
  });
}

void sum_blocks(const Groups& groups, const double* sums, float* dgamma, float* dbeta) {
  const int64_t channels = groups.view.channels;
  for (int64_t c = 0; c < channels; ++c) {
    double shift = 0, scale = 0;
    for (int64_t block = 0; block < groups.blocks; ++block) {
      shift += sums[2 * block * channels + c];
      scale += sums[(2 * block + 1) * channels + c];
    }
    dbeta[c] = static_cast<float>(shift);
    dgamma[c] = static_cast<float>(scale);
  }
}

// Normalizes if each channel has one value.
template <class T>
void normalize_rows(const Groups& groups, const T* x, T* y, const GroupForward& a) {
  parallel_for(groups.view.rows * groups.count, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * groups.channels, channel = at % groups.view.channels;
      forward_row(x + at, a.gamma + channel, a.beta + channel, y + at, groups.channels, a.epsilon,
                  a.saved ? a.saved + 2 * row : nullptr);
    }
  });
}

template <class T>
void propagate_rows(const Groups& groups, const T* x, const T* dy, T* dx, const GroupBackward& a,
                    float* dgamma, float* dbeta) {
  const int64_t channels = groups.view.channels;
  if (dgamma) {
    const int64_t pieces = (groups.channels + kColumns - 1) / kColumns;  // pieces of a group
    parallel_for(groups.count * pieces, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t group = piece / pieces, from = piece % pieces * kColumns;
        const int64_t first = group * groups.channels + from;
        parameter_gradients(x + first, dy + first, a.saved + 2 * group, 2 * groups.count, a.valid,
                            channels, std::min(kColumns, groups.channels - from), dgamma + first,
                            dbeta + first);
      }
    });
  }
  parallel_for(groups.view.rows * groups.count, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * groups.channels;
      if (row >= a.valid * groups.count) {
        std::fill_n(dx + at, groups.channels, T{});
        continue;
      }
      backward_row(x + at, dy + at, a.gamma + at % channels, a.saved + 2 * row, dx + at,
                   groups.channels);
    }
  });
}

}  // namespace

Plan plan(const GroupNormForward& op, const EnginePtr&, Specs given) {
  using Op = GroupNormForward;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX, Op::kY});
  const Groups groups(*ChannelView::of(specs[Op::kX]), op.groups);
  Affine affine(specs[Op::kGamma], groups.view.channels);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [=, epsilon = op.epsilon](Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      auto* y = pointer<T>(args, Op::kY);
      const GroupForward a{.gamma = affine.scale(pointer<const float>(args, Op::kGamma)),
                           .beta = affine.shift(pointer<const float>(args, Op::kBeta)),
                           .epsilon = epsilon,
                           .saved = pointer<float>(args, Op::kSaved)};
      groups.rows() ? normalize_rows(groups, x, y, a) : normalize_groups(groups, x, y, a);
    });
  });
}

Plan plan(const GroupNormBackward& op, const EnginePtr&, Specs given) {
  using Op = GroupNormBackward;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX, Op::kDy, Op::kDx});
  const Groups groups(*ChannelView::of(specs[Op::kX]), op.groups);
  Affine affine(specs[Op::kGamma], groups.view.channels);
  const size_t sums =
      groups.rows() ? 0 : static_cast<size_t>(groups.blocks * 2 * groups.view.channels);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    const auto work = [=](Args args, void* scratch) {
      const auto* x = pointer<const T>(args, Op::kX);
      const auto* dy = pointer<const T>(args, Op::kDy);
      auto* dx = pointer<T>(args, Op::kDx);
      auto* dgamma = pointer<float>(args, Op::kDgamma);
      auto* dbeta = pointer<float>(args, Op::kDbeta);
      const GroupBackward a{.gamma = affine.scale(pointer<const float>(args, Op::kGamma)),
                            .saved = pointer<const float>(args, Op::kSaved),
                            .sums = static_cast<double*>(scratch),
                            .valid = valid_rows(args[Op::kState], groups.view.rows)};
      if (groups.rows()) return propagate_rows(groups, x, dy, dx, a, dgamma, dbeta);
      propagate_groups(groups, x, dy, dx, a);
      if (dgamma) sum_blocks(groups, a.sums, dgamma, dbeta);
    };
    return host_op(std::move(specs), work, sums * sizeof(double));
  });
}

}  // namespace trireme::ops::cpu
