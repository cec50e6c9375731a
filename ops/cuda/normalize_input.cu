#include <vector>

#include "ops/cuda/context.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/transpose.h"
#include "ops/cuda/upload.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// y = x * factor + offset.
struct Scaling {
  float factor, offset;

  template <class Y, class X>
  __device__ Y apply(X x) const {
    return from_float<Y>(static_cast<float>(x) * factor + offset);
  }
};

// Returns the scaling of every channel.
std::vector<Scaling> scalings(const NormalizeInput& op, int64_t channels) {
  const auto of = [](const std::vector<float>& values, size_t channel) {
    return static_cast<double>(values[values.size() == 1 ? 0 : channel]);
  };
  std::vector<Scaling> all;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const double stddev = of(op.stddev, c);
    all.push_back(
        {static_cast<float>(op.scale / stddev), static_cast<float>(-of(op.mean, c) / stddev)});
  }
  return all;
}

// For x and y with the same element order. The channel changes after `positions` elements.
template <class Y>
struct NormalizeInOrder {
  const Scaling* scaling;
  Divisor channels, positions;

  template <int N, class X>
  __device__ Pack<Y, N> operator()(int64_t at, const Pack<X, N>& x) const {
    auto [plane, position] = positions.divide(at);
    int64_t channel = channels.divide(plane).remainder;
    Pack<Y, N> y;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      y.values[i] = scaling[channel].template apply<Y>(x.values[i]);
      if (++position < positions.value()) continue;
      position = 0;
      if (++channel == channels.value()) channel = 0;
    }
    return y;
  }
};

// For one tensor in row-major and the other in channels-last order.
template <class Y>
struct NormalizeTransposed {
  const Scaling* scaling;
  bool channels_are_rows;

  template <class X>
  __device__ Y operator()(X x, int64_t row, int64_t column) const {
    return scaling[channels_are_rows ? row : column].template apply<Y>(x);
  }
};

template <class X, class Y>
Plan plan_normalize(const NormalizeInput& op, Device& device, std::vector<TensorSpec> specs) {
  using Op = NormalizeInput;
  const TensorSpec& x = specs[Op::kX];
  const Shape shape = x.shape;
  const bool x_channels_last = x.layout == Layout::channels_last();
  Buffer table = upload(device, scalings(op, shape[1]));
  if (!same_order(shape, x.layout, specs[Op::kY].layout)) {
    const Matrices matrices = matrices_of(shape, x.layout);
    return function_op(std::move(specs), [matrices, x_channels_last, table = std::move(table)](
                                             Stream& stream, Args args, void*) {
      const NormalizeTransposed<Y> normalize{table.as<Scaling>(), !x_channels_last};
      transpose("normalize_input", stream, matrices, normalize, pointer<const X>(args, Op::kX),
                pointer<Y>(args, Op::kY));
    });
  }
  const int64_t count = shape.elements();
  const int64_t positions = x_channels_last ? 1 : count / (shape[0] * shape[1]);
  const Divisor by_channels(shape[1], count + kMapReach);
  const Divisor by_positions(positions, count + kMapReach);
  return function_op(std::move(specs), [count, by_channels, by_positions, table = std::move(table)](
                                           Stream& stream, Args args, void*) {
    const NormalizeInOrder<Y> normalize{table.as<Scaling>(), by_channels, by_positions};
    map_packs("normalize_input", stream, count, normalize, pointer<Y>(args, Op::kY),
              pointer<const X>(args, Op::kX));
  });
}

}  // namespace

Plan plan(const NormalizeInput& op, const ContextPtr& context, Specs given) {
  using Op = NormalizeInput;
  std::vector<TensorSpec> specs(given.begin(), given.end());
  TensorSpec& x = specs[Op::kX];
  TensorSpec& y = specs[Op::kY];
  if (x.layout.is_any()) x.layout = Layout::row_major();
  // Convolutions require channels-last.
  if (y.layout.is_any() && y.shape.rank() == 4) y.layout = Layout::channels_last();
  if (y.layout.is_any()) y.layout = Layout::row_major();
  const DType stored = x.dtype;
  return with_element(y.dtype, [&]<class Y>(Y) {
    Device& device = context->device;
    if (stored == DType::kU8) return plan_normalize<uint8_t, Y>(op, device, std::move(specs));
    if (stored == DType::kF32) return plan_normalize<float, Y>(op, device, std::move(specs));
    throw Error("inputs are u8 or f32, not " + std::string(name_of(stored)));
  });
}

}  // namespace trireme::ops::cuda
