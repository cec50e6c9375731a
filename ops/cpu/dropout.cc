// Dropout. Masks are computed in pieces, in the element order defined in ops/dropout.h
// (channels-last), and applied to the elements wherever the layout places them.
#include "ops/dropout.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/random.h"
#include "ops/cpu/channel_view.h"
#include "ops/cpu/plans.h"
#include "ops/function_op.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {
namespace {

constexpr int64_t kPiece = 1024;  // number of elements whose mask is computed at once

// Computes the factors of elements first_index, first_index + 1, ...: `scale`, or 0 if the element
// is dropped.
__attribute__((flatten)) TRIREME_VECTORIZED void make_factors(const Random& random,
                                                              uint64_t first_index, int64_t count,
                                                              float rate, float scale,
                                                              float* factors) {
  alignas(64) uint32_t words[kPiece + 8];
  const Random local = random;
  const uint64_t first_group = first_index / 4;
  const auto skipped = static_cast<int64_t>(first_index % 4);
  const int64_t groups = (skipped + count + 3) / 4;
  for (int64_t i = 0; i < groups; ++i) {
    const Random4 four = local.four(first_group + static_cast<uint64_t>(i));
    words[4 * i] = four[0];
    words[4 * i + 1] = four[1];
    words[4 * i + 2] = four[2];
    words[4 * i + 3] = four[3];
  }
  for (int64_t i = 0; i < count; ++i) {
    factors[i] = uniform(words[i + skipped]) >= rate ? scale : 0;
  }
}

template <class T>
TRIREME_INLINE inline T keep_or_drop(T x, float factor) {
  return from_float<T>(factor != 0 ? to_float(x) * factor : 0);  // also drops NaN
}

template <class T>
TRIREME_VECTORIZED void apply_contiguous(const T* x, T* y, const float* factors, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = keep_or_drop(x[i], factors[i]);
}

// Processes elements first, first + 1, ... of a row, counted channels-last, in a row-major or
// blocked layout.
template <class T>
TRIREME_VECTORIZED void apply_scattered(const ChannelView& view, const T* x, T* y, int64_t first,
                                        const float* factors, int64_t count) {
  int64_t position = first / view.channels;
  int64_t channel = first % view.channels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t group = channel / view.per_group;
    const int64_t at =
        (group * view.spatial + position) * view.per_group + channel % view.per_group;
    y[at] = keep_or_drop(x[at], factors[i]);
    if (++channel == view.channels) channel = 0, ++position;
  }
}

struct DropoutParams {
  ChannelView view;
  float rate;
  uint64_t layer;
};

template <class T>
void drop(const DropoutParams& d, const StepState& state, const T* x, T* y) {
  const ChannelView& view = d.view;
  const auto sample_elements = static_cast<uint64_t>(view.channels * view.spatial);
  const Random random(state.seed, RandomPurpose::kDropout,
                      mix64(d.layer) + static_cast<uint64_t>(state.step));
  const float scale = d.rate < 1 ? 1 / (1 - d.rate) : 0;
  parallel_for(view.rows, [&](int64_t begin, int64_t end) {
    alignas(64) float factors[kPiece];
    for (int64_t n = begin; n < end; ++n) {
      const T* from = x + n * view.row_stride();
      T* to = y + n * view.row_stride();
      if (view.stored != view.channels && x != y) std::fill_n(to, view.row_stride(), T());
      const uint64_t sample = static_cast<uint64_t>(state.place_of(n)) * sample_elements;
      for (uint64_t i = 0; i < sample_elements; i += kPiece) {
        const auto count = static_cast<int64_t>(std::min<uint64_t>(kPiece, sample_elements - i));
        const auto at = static_cast<int64_t>(i);
        make_factors(random, sample + i, count, d.rate, scale, factors);
        view.contiguous ? apply_scattered(view, from, to, at, factors, count)
                        : apply_contiguous(from + at, to + at, factors, count);
      }
    }
  });
}

Plan plan_dropout(Specs given, int x, int state, int y, float rate, uint64_t layer) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  TensorSpec& from = specs[x];
  from.layout = ChannelView::nearest(from);
  specs[y].layout = from.layout;
  specs[state].layout = Layout::row_major();
  const DropoutParams params{*ChannelView::of(from), rate, layer};
  return with_element(from.dtype, [&]<class T>(T) -> Plan {
    return host_op(std::move(specs), [=](Args args, void*) {
      drop(params, *pointer<const StepState>(args, state), pointer<const T>(args, x),
           pointer<T>(args, y));
    });
  });
}

}  // namespace

Plan plan(const DropoutForward& op, const EnginePtr&, Specs given) {
  using Op = DropoutForward;
  return plan_dropout(given, Op::kX, Op::kState, Op::kY, op.rate, op.layer);
}

Plan plan(const DropoutBackward& op, const EnginePtr&, Specs given) {
  using Op = DropoutBackward;
  return plan_dropout(given, Op::kDy, Op::kState, Op::kDx, op.rate, op.layer);
}

}  // namespace trireme::ops::cpu
