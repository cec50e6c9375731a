// Group normalization. Work is divided into samples and spans of channels, so that the second pass
// over a span of a sample finds it in cache. A span has whole groups of the op and whole groups of
// the ChannelView, which are called vectors here. With one value a channel groups are short rows.
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

// Parts that the backward pass is divided into, or few more: the same for any number of threads, as
// the gradients of scale and shift are summed up part by part.
constexpr int64_t kParts = 64;

struct Groups {
  Groups(const ChannelView& channel_view, int64_t groups)
      : view(channel_view),
        count(groups),
        channels(view.channels / groups),
        span(std::min(std::lcm(channels, view.per_group), view.channels)),
        spans((view.channels + span - 1) / span),
        blocks(std::min(view.rows, (kParts + spans - 1) / spans)) {}

  // Whether each channel of a sample is one value, so that a group is a row of neighbors.
  bool rows() const { return view.spatial == 1 && view.stored == view.channels; }
  double values() const { return static_cast<double>(channels * view.spatial); }
  int64_t first_vector(int64_t at) const { return at * span / view.per_group; }
  int64_t end_vector(int64_t at) const {
    return std::min(((at + 1) * span + view.per_group - 1) / view.per_group, view.groups);
  }
  int64_t first_group(int64_t at) const { return at * span / channels; }
  int64_t end_group(int64_t at) const { return std::min(first_group(at + 1), count); }
  // Mean and 1 / std of the group of a channel.
  const float* statistics(const float* saved, int64_t row, int64_t channel) const {
    return saved + 2 * (row * count + channel / channels);
  }

  ChannelView view;
  int64_t count;     // of a sample
  int64_t channels;  // of a group
  int64_t span;      // channels of a span
  int64_t spans;     // of a sample
  int64_t blocks;    // of samples
};

// What a span has of groups at most.
template <class T>
using OfGroups = std::array<T, kLanes>;

// Fills lanes with f(channel).
template <class F>
void fill_lanes(const ChannelView& view, int64_t vector, float* lanes, F f) {
  const int64_t known = view.channels_in(vector);
  for (int64_t i = 0; i < view.per_group; ++i) {
    lanes[i] = i < known ? f(vector * view.per_group + i) : 0.0f;
  }
  for (int64_t l = view.per_group; l < kLanes; ++l) lanes[l] = lanes[l - view.per_group];
}

Run row_of(const Run& run, int64_t row) {
  Run one = run;
  one.offset += row * run.row_stride;
  one.rows = 1;
  return one;
}

// Scale and shift of all channels, 1 and 0 where the op has none.
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

template <class T>
void normalize_span(const Groups& groups, int64_t row, int64_t span, const T* x, T* y,
                    const GroupForward& a) {
  const ChannelView& view = groups.view;
  const int64_t first = groups.first_group(span);
  OfGroups<double> sums{}, squares{};
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    LanePairSums own;
    sum_moments(x, row_of(view.run(v), row), 1, own);
    for (int64_t i = 0; i < view.channels_in(v); ++i) {
      const auto g = static_cast<size_t>((v * view.per_group + i) / groups.channels - first);
      sums[g] += view.gather(own.first, i);
      squares[g] += view.gather(own.second, i);
    }
  }
  OfGroups<float> means{}, inv_stds{};
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
  const auto group = [&](int64_t c) { return static_cast<size_t>(c / groups.channels - first); };
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Normalisation c;
    fill_lanes(view, v, c.mean.values, [&](int64_t i) { return means[group(i)]; });
    fill_lanes(view, v, c.scale.values, [&](int64_t i) { return a.gamma[i] * inv_stds[group(i)]; });
    fill_lanes(view, v, c.shift.values, [&](int64_t i) { return a.beta[i]; });
    normalise<T, false>(x, nullptr, y, row_of(view.run(v), row), c);
  }
}

template <class T>
void normalize_groups(const Groups& groups, const T* x, T* y, const GroupForward& a) {
  parallel_for(groups.view.rows * groups.spans, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      normalize_span(groups, part / groups.spans, part % groups.spans, x, y, a);
    }
  });
}

struct GroupBackward {
  const float *gamma, *saved;
  double* sums;  // of dy and of dy * xhat: [blocks, 2, channels]
  int64_t valid;
};

template <class T>
void propagate_span(const Groups& groups, int64_t row, int64_t span, const T* x, const T* dy, T* dx,
                    const GroupBackward& a, double* dbeta, double* dgamma) {
  const ChannelView& view = groups.view;
  const int64_t first = groups.first_group(span);
  const auto mean = [&](int64_t c) { return groups.statistics(a.saved, row, c)[0]; };
  OfGroups<double> sums{}, products{};
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Lanes means;
    LanePairSums own;
    fill_lanes(view, v, means.values, mean);
    sum_gradients<T, false, false>(x, nullptr, dy, nullptr, row_of(view.run(v), row), 1, means,
                                   own);
    for (int64_t i = 0; i < view.channels_in(v); ++i) {
      const int64_t c = v * view.per_group + i;
      const double sum = view.gather(own.first, i);
      const double product = view.gather(own.second, i) * groups.statistics(a.saved, row, c)[1];
      dbeta[c] += sum;
      dgamma[c] += product;
      const auto g = static_cast<size_t>(c / groups.channels - first);
      sums[g] += a.gamma[c] * sum;
      products[g] += a.gamma[c] * product;
    }
  }
  OfGroups<float> shifts{}, slopes{};
  for (int64_t g = first; g < groups.end_group(span); ++g) {
    const auto i = static_cast<size_t>(g - first);
    const double inv_std = a.saved[2 * (row * groups.count + g) + 1];
    shifts[i] = static_cast<float>(sums[i] / groups.values());
    slopes[i] = static_cast<float>(inv_std * products[i] / groups.values());
  }
  const auto group = [&](int64_t c) { return static_cast<size_t>(c / groups.channels - first); };
  for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
    Gradient c;
    fill_lanes(view, v, c.mean.values, mean);
    fill_lanes(view, v, c.factor.values, [&](int64_t i) { return a.gamma[i]; });
    fill_lanes(view, v, c.scale.values,
               [&](int64_t i) { return groups.statistics(a.saved, row, i)[1]; });
    fill_lanes(view, v, c.shift.values, [&](int64_t i) { return shifts[group(i)]; });
    fill_lanes(view, v, c.slope.values, [&](int64_t i) { return slopes[group(i)]; });
    propagate(x, dy, dx, row_of(view.run(v), row), 1, c);
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
        if (row < a.valid) {
          propagate_span(groups, row, span, x, dy, dx, a, dbeta, dgamma);
          continue;
        }
        for (int64_t v = groups.first_vector(span); v < groups.end_vector(span); ++v) {
          clear_rows(dx, row_of(view.run(v), row), 0);
        }
      }
    }
  });
}

void add_up_blocks(const Groups& groups, const double* sums, float* dgamma, float* dbeta) {
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

// The same where each channel is one value.
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
    const int64_t pieces = (groups.channels + kColumns - 1) / kColumns;  // of a group
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
      if (dgamma) add_up_blocks(groups, a.sums, dgamma, dbeta);
    };
    return host_op(std::move(specs), work, sums * sizeof(double));
  });
}

}  // namespace trireme::ops::cpu
