// Batch normalization, one group of channels at a time, so that the second pass over a group finds
// it in cache.
#include "ops/batch_norm.h"

#include <array>
#include <cmath>

#include "core/parallel.h"
#include "ops/cpu/channel_passes.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

double mean_over(double sum, double count) { return count > 0 ? sum / count : 0; }

struct ForwardArgs {
  const void *x, *residual;
  const float *gamma, *beta;
  const double* sums;
  float *running_mean, *running_var;
  void* y;
  float* saved;
};

// Writes the statistics of a group to `saved` and updates its running statistics.
void finish_statistics(const BatchNormForward& op, const ChannelView& view, int64_t group,
                       const LanePairSums& own, int64_t valid, const ForwardArgs& a) {
  const int64_t channels = view.channels;
  for (int64_t i = 0; i < view.channels_in(group); ++i) {
    const int64_t c = group * view.per_group + i;
    const double count = a.sums ? a.sums[2 * channels] : static_cast<double>(valid * view.spatial);
    const double mean = mean_over(a.sums ? a.sums[c] : view.gather(own.first, i), count);
    const double square =
        mean_over(a.sums ? a.sums[channels + c] : view.gather(own.second, i), count);
    const double var = std::max(0.0, square - mean * mean);
    a.saved[c] = static_cast<float>(mean);
    a.saved[channels + c] = static_cast<float>(1 / std::sqrt(var + op.epsilon));
    if (!a.running_mean || count == 0) continue;
    const double unbiased = count > 1 ? var * count / (count - 1) : var;
    a.running_mean[c] += op.momentum * static_cast<float>(mean - a.running_mean[c]);
    a.running_var[c] += op.momentum * static_cast<float>(unbiased - a.running_var[c]);
  }
}

template <class T>
void forward(const BatchNormForward& op, const ChannelView& view, int64_t valid,
             const ForwardArgs& a) {
  parallel_for(view.groups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const Run run = view.run(group);
      const T* x = static_cast<const T*>(a.x);
      LanePairSums own{};
      if (!a.sums) sum_moments(x, run, valid, own);
      finish_statistics(op, view, group, own, valid, a);
      Normalization c{.floor = op.relu ? 0 : kNoFloor};
      view.spread(a.saved, group, c.mean.values);
      view.spread(a.saved + view.channels, group, c.scale.values);
      view.spread(a.beta, group, c.shift.values);
      Lanes gamma;
      view.spread(a.gamma, group, gamma.values);
      for (int l = 0; l < kLanes; ++l) c.scale.values[l] *= gamma.values[l];
      T* y = static_cast<T*>(a.y);
      if (a.residual) {
        normalize<T, true>(x, static_cast<const T*>(a.residual), y, run, c);
      } else {
        normalize<T, false>(x, nullptr, y, run, c);
      }
    }
  });
}

struct BackwardArgs {
  const void *x, *y, *dy;  // y is null without a ReLU
  const float *gamma, *saved;
  const double* sums;
  void *dx, *dresidual;
  float *dgamma, *dbeta;
};

// Computes the sums of g and of g * (x - mean) of a group. Returns the array that holds g from now
// on.
template <class T>
const T* sum_group(const BackwardArgs& a, const Run& run, int64_t valid, T* g_out,
                   const Lanes& mean, LanePairSums& own) {
  const auto* x = static_cast<const T*>(a.x);
  const auto* y = static_cast<const T*>(a.y);
  const auto* dy = static_cast<const T*>(a.dy);
  if (g_out) {
    y ? sum_gradients<T, true, true>(x, y, dy, g_out, run, valid, mean, own)
      : sum_gradients<T, false, true>(x, y, dy, g_out, run, valid, mean, own);
    return g_out;
  }
  y ? sum_gradients<T, true, false>(x, y, dy, g_out, run, valid, mean, own)
    : sum_gradients<T, false, false>(x, y, dy, g_out, run, valid, mean, own);
  return dy;
}

template <class T>
void backward(const ChannelView& view, int64_t valid, const BackwardArgs& a) {
  auto* dx = static_cast<T*>(a.dx);
  auto* dresidual = static_cast<T*>(a.dresidual);
  T* g_out = dresidual ? dresidual : a.y ? dx : nullptr;
  parallel_for(view.groups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const Run run = view.run(group);
      Gradient c{};
      LanePairSums own{};
      view.spread(a.saved, group, c.mean.values);
      const T* g = sum_group(a, run, valid, g_out, c.mean, own);
      std::array<float, kLanes> scale{}, shift{}, slope{};
      for (int64_t i = 0; i < view.channels_in(group); ++i) {
        const int64_t channel = group * view.per_group + i;
        const double inv_std = a.saved[view.channels + channel];
        double sum = view.gather(own.first, i);
        double product = view.gather(own.second, i) * inv_std;
        a.dbeta[channel] = static_cast<float>(sum);
        a.dgamma[channel] = static_cast<float>(product);
        auto count = static_cast<double>(valid * view.spatial);
        if (a.sums) {
          sum = a.sums[channel];
          product = a.sums[view.channels + channel];
          count = a.sums[2 * view.channels];
        }
        const auto lane = static_cast<size_t>(i);
        scale[lane] = static_cast<float>(a.gamma[channel] * inv_std);
        shift[lane] = static_cast<float>(mean_over(sum, count));
        slope[lane] = static_cast<float>(mean_over(product, count) * inv_std);
      }
      for (int l = 0; l < kLanes; ++l) {
        const auto lane = static_cast<size_t>(l % view.per_group);
        c.factor.values[l] = 1;
        c.scale.values[l] = scale[lane];
        c.shift.values[l] = shift[lane];
        c.slope.values[l] = slope[lane];
      }
      propagate(static_cast<const T*>(a.x), g, dx, run, valid, c);
      clear_rows(dx, run, valid);
      if (dresidual) clear_rows(dresidual, run, valid);
    }
  });
}

template <class T>
void statistics(const ChannelView& view, int64_t valid, const T* x, double* sums) {
  parallel_for(view.groups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      LanePairSums own{};
      sum_moments(x, view.run(group), valid, own);
      for (int64_t i = 0; i < view.channels_in(group); ++i) {
        const int64_t c = group * view.per_group + i;
        sums[c] = view.gather(own.first, i);
        sums[view.channels + c] = view.gather(own.second, i);
      }
    }
  });
  sums[2 * view.channels] = static_cast<double>(valid * view.spatial);
}

template <class T>
void backward_sums(const ChannelView& view, int64_t valid, const BackwardArgs& a, double* sums) {
  parallel_for(view.groups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      Lanes mean;
      LanePairSums own{};
      view.spread(a.saved, group, mean.values);
      sum_group<T>(a, view.run(group), valid, nullptr, mean, own);
      for (int64_t i = 0; i < view.channels_in(group); ++i) {
        const int64_t c = group * view.per_group + i;
        sums[c] = view.gather(own.first, i);
        sums[view.channels + c] = view.gather(own.second, i) * a.saved[view.channels + c];
      }
    }
  });
  sums[2 * view.channels] = static_cast<double>(valid * view.spatial);
}

template <class T>
void inference(const BatchNormInference& op, const ChannelView& view, const ForwardArgs& a) {
  parallel_for(view.groups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      Normalization c{.floor = op.relu ? 0 : kNoFloor};
      Lanes gamma;
      if (a.running_mean) view.spread(a.running_mean, group, c.mean.values);
      view.spread(a.running_var, group, c.scale.values);
      if (a.beta) view.spread(a.beta, group, c.shift.values);
      view.spread(a.gamma, group, gamma.values);
      for (int l = 0; l < kLanes; ++l) {
        c.scale.values[l] = gamma.values[l] / std::sqrt(c.scale.values[l] + op.epsilon);
      }
      const Run run = view.run(group);
      const T* x = static_cast<const T*>(a.x);
      T* y = static_cast<T*>(a.y);
      if (a.residual) {
        normalize<T, true>(x, static_cast<const T*>(a.residual), y, run, c);
      } else {
        normalize<T, false>(x, nullptr, y, run, c);
      }
    }
  });
}

}  // namespace

Plan plan(const BatchNormStatistics&, const EnginePtr&, Specs given) {
  using Op = BatchNormStatistics;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX});
  const ChannelView view = *ChannelView::of(specs[Op::kX]);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [view](Args args, void*) {
      statistics(view, valid_rows(args[Op::kState], view.rows), pointer<const T>(args, Op::kX),
                 pointer<double>(args, Op::kSums));
    });
  });
}

Plan plan(const BatchNormForward& op, const EnginePtr&, Specs given) {
  using Op = BatchNormForward;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX, Op::kResidual, Op::kY});
  const ChannelView view = *ChannelView::of(specs[Op::kX]);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [op, view](Args args, void*) {
      forward<T>(op, view, valid_rows(args[Op::kState], view.rows),
                 {.x = args[Op::kX],
                  .residual = args[Op::kResidual],
                  .gamma = pointer<const float>(args, Op::kGamma),
                  .beta = pointer<const float>(args, Op::kBeta),
                  .sums = pointer<const double>(args, Op::kSums),
                  .running_mean = pointer<float>(args, Op::kRunningMean),
                  .running_var = pointer<float>(args, Op::kRunningVar),
                  .y = args[Op::kY],
                  .saved = pointer<float>(args, Op::kSaved)});
    });
  });
}

Plan plan(const BatchNormInference& op, const EnginePtr&, Specs given) {
  using Op = BatchNormInference;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX, Op::kResidual, Op::kY});
  const ChannelView view = *ChannelView::of(specs[Op::kX]);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [op, view](Args args, void*) {
      inference<T>(op, view,
                   {.x = args[Op::kX],
                    .residual = args[Op::kResidual],
                    .gamma = pointer<const float>(args, Op::kGamma),
                    .beta = pointer<const float>(args, Op::kBeta),
                    .sums = nullptr,
                    .running_mean = pointer<float>(args, Op::kRunningMean),
                    .running_var = pointer<float>(args, Op::kRunningVar),
                    .y = args[Op::kY],
                    .saved = nullptr});
    });
  });
}

Plan plan(const BatchNormBackwardSums& op, const EnginePtr&, Specs given) {
  using Op = BatchNormBackwardSums;
  std::vector<TensorSpec> specs = in_channel_view(given, {Op::kX, Op::kY, Op::kDy});
  const ChannelView view = *ChannelView::of(specs[Op::kX]);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [view, relu = op.relu](Args args, void*) {
      backward_sums<T>(view, valid_rows(args[Op::kState], view.rows),
                       {.x = args[Op::kX],
                        .y = relu ? args[Op::kY] : nullptr,
                        .dy = args[Op::kDy],
                        .gamma = nullptr,
                        .saved = pointer<const float>(args, Op::kSaved),
                        .sums = nullptr,
                        .dx = nullptr,
                        .dresidual = nullptr,
                        .dgamma = nullptr,
                        .dbeta = nullptr},
                       pointer<double>(args, Op::kSums));
    });
  });
}

Plan plan(const BatchNormBackward& op, const EnginePtr&, Specs given) {
  using Op = BatchNormBackward;
  std::vector<TensorSpec> specs =
      in_channel_view(given, {Op::kX, Op::kY, Op::kDy, Op::kDx, Op::kDresidual});
  const ChannelView view = *ChannelView::of(specs[Op::kX]);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [view, relu = op.relu](Args args, void*) {
      backward<T>(view, valid_rows(args[Op::kState], view.rows),
                  {.x = args[Op::kX],
                   .y = relu ? args[Op::kY] : nullptr,
                   .dy = args[Op::kDy],
                   .gamma = pointer<const float>(args, Op::kGamma),
                   .saved = pointer<const float>(args, Op::kSaved),
                   .sums = pointer<const double>(args, Op::kSums),
                   .dx = args[Op::kDx],
                   .dresidual = args[Op::kDresidual],
                   .dgamma = pointer<float>(args, Op::kDgamma),
                   .dbeta = pointer<float>(args, Op::kDbeta)});
    });
  });
}

}  // namespace trireme::ops::cpu
