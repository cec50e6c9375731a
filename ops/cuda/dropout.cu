// Dropout. Each thread computes the random numbers of the elements that it reads, so the mask is
// never in memory.
#include "core/random.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/plans.h"
#include "ops/dropout.h"
#include "ops/function_op.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

// Returns four consecutive numbers of `group` and `next`, after the `skipped` first ones. Avoids
// indices that are known only at run time, because they would move the numbers to local memory.
__device__ Random4 shifted(const Random4& group, const Random4& next, unsigned skipped) {
  const uint32_t all[7] = {group[0], group[1], group[2], group[3], next[0], next[1], next[2]};
  uint32_t by_one[6];
#pragma unroll
  for (int i = 0; i < 6; ++i) by_one[i] = skipped & 1 ? all[i + 1] : all[i];
  Random4 result;
#pragma unroll
  for (int i = 0; i < 4; ++i) result[i] = skipped & 2 ? by_one[i + 2] : by_one[i];
  return result;
}

struct DropoutParams {
  const StepState* state;
  uint64_t layer;  // mix64 of the layer
  int64_t rows, sample_elements;
  float rate, scale;

  __device__ Random random() const {
    return {state->seed, RandomPurpose::kDropout, layer + static_cast<uint64_t>(state->step)};
  }
  // Returns the index of the first element of row 0, if the samples of the rows are consecutive.
  __device__ uint64_t first_index() const {
    return static_cast<uint64_t>(state->first_sample) * static_cast<uint64_t>(sample_elements);
  }
  // Returns the random number of an element of a row. Packs at the end of the tensor have elements
  // of rows that do not exist.
  __device__ uint32_t bits_of(const Random& random, int64_t row, int64_t element) const {
    const int64_t sample = state->place_of(row < rows ? row : rows - 1);
    const auto index = static_cast<uint64_t>(sample * sample_elements + element);
    const Random4 group = random.four(index / 4);
    return shifted(group, group, static_cast<unsigned>(index % 4))[0];
  }
  template <class T>
  __device__ T keep_or_drop(T x, uint32_t bits) const {
    return from_float<T>(uniform(bits) >= rate ? to_float(x) * scale : 0.0f);  // also drops NaN
  }
};

// For layouts in the element order defined in ops/dropout.h, so that adjacent elements share groups
// of random numbers. The first element of a pack may be at any position in its group, the same for
// all packs.
struct DropInOrder {
  DropoutParams params;
  Divisor samples;

  template <int N, class T>
  __device__ Pack<T, N> operator()(int64_t at, const Pack<T, N>& x) const {
    static_assert(N % 4 == 0);
    const Random random = params.random();
    Pack<T, N> y;
    if (params.state->places) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const auto [row, element] = samples.divide(at + i);
        y.values[i] = params.keep_or_drop(x.values[i], params.bits_of(random, row, element));
      }
      return y;
    }
    const uint64_t index = params.first_index() + static_cast<uint64_t>(at);
    const auto skipped = static_cast<unsigned>(index % 4);
    Random4 group = random.four(index / 4);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      Random4 next = group;
      if (i + 4 < N || skipped != 0) next = random.four(index / 4 + i / 4 + 1);
      const Random4 words = shifted(group, next, skipped);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        y.values[i + k] = params.keep_or_drop(x.values[i + k], words[k]);
      }
      group = next;
    }
    return y;
  }
};

// For row-major order with more than one channel and position.
struct DropRowMajor {
  DropoutParams params;
  Divisor channels, positions;

  template <int N, class T>
  __device__ Pack<T, N> operator()(int64_t at, const Pack<T, N>& x) const {
    const Random random = params.random();
    Pack<T, N> y;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto [plane, position] = positions.divide(at + i);
      const auto [row, channel] = channels.divide(plane);
      const int64_t element = position * channels.value() + channel;
      y.values[i] = params.keep_or_drop(x.values[i], params.bits_of(random, row, element));
    }
    return y;
  }
};

Plan plan_dropout(Specs given, int x, int state, int y, float rate, uint64_t layer) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  TensorSpec& from = specs[x];
  TensorSpec& to = specs[y];
  if (from.layout.is_any()) from.layout = to.layout;
  if (from.layout.is_any()) from.layout = Layout::row_major();
  to.layout = from.layout;
  specs[state].layout = Layout::row_major();

  const Shape shape = from.shape;
  const int64_t count = shape.elements();
  if (count == 0) return function_op(std::move(specs), [](Stream&, Args, void*) {});
  const int64_t sample_elements = count / shape[0];
  const int64_t channels = shape.rank() > 1 ? shape[1] : 1;
  const int64_t positions = sample_elements / channels;
  const bool in_order = same_order(shape, from.layout, Layout::channels_last());
  const Divisor by_samples(sample_elements, count + kMapReach);
  const Divisor by_channels(channels, count + kMapReach);
  const Divisor by_positions(positions, count + kMapReach);
  return with_element(from.dtype, [&]<class T>(T) -> Plan {
    return function_op(std::move(specs), [=](Stream& stream, Args args, void*) {
      const DropoutParams params{pointer<const StepState>(args, state),
                                 mix64(layer),
                                 shape[0],
                                 sample_elements,
                                 rate,
                                 1 / (1 - rate)};
      const auto* from_elements = pointer<const T>(args, x);
      auto* to_elements = pointer<T>(args, y);
      if (in_order) {
        map_packs("dropout", stream, count, DropInOrder{params, by_samples}, to_elements,
                  from_elements);
      } else {
        map_packs("dropout", stream, count, DropRowMajor{params, by_channels, by_positions},
                  to_elements, from_elements);
      }
    });
  });
}

}  // namespace

Plan plan(const DropoutForward& op, const ContextPtr&, Specs given) {
  using Op = DropoutForward;
  return plan_dropout(given, Op::kX, Op::kState, Op::kY, op.rate, op.layer);
}

Plan plan(const DropoutBackward& op, const ContextPtr&, Specs given) {
  using Op = DropoutBackward;
  return plan_dropout(given, Op::kDy, Op::kState, Op::kDx, op.rate, op.layer);
}

}  // namespace trireme::ops::cuda
