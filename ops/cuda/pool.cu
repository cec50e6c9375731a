// Pooling in channels-last order: each thread computes a pack of channels at one position. In the
// backward pass it gathers from all windows that contain its position, in a fixed order, so that no
// atomic additions are needed.
#include <type_traits>

#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"
#include "ops/pool.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kPoolThreads = 256;

struct Range {
  int begin, end;
};

// The windows in one of the two spatial dimensions.
struct Axis {
  int extent;   // of x
  int windows;  // of y
  int kernel, stride, padding;
  Divisor by_stride;

  // Returns the start of a window, which may be in the padding.
  __device__ int start(int window) const { return window * stride - padding; }
  // Returns the part of x that a window covers.
  __device__ Range covered(int window) const {
    return {max(start(window), 0), min(start(window) + kernel, extent)};
  }
  // Returns the windows that cover a position of x.
  __device__ Range covering(int position) const {
    const int padded = position + padding;
    const int first = padded < kernel ? 0 : quotient(padded - kernel) + 1;
    return {first, min(quotient(padded) + 1, windows)};
  }

 private:
  __device__ int quotient(int n) const { return static_cast<int>(by_stride.divide(n).quotient); }
};

// Position of a pack of channels in a batch of images.
struct PackPosition {
  int64_t image;
  int row, column;
  int64_t channel;  // first channel of the pack
};

// Enumerates the packs of all positions of all images.
struct PackPositions {
  int64_t count;
  int pack;
  Divisor rows, columns, packs;

  PackPositions(const Shape& shape, int channels_of_pack)
      : count(shape.elements() / channels_of_pack),
        pack(channels_of_pack),
        rows(shape[2], count),
        columns(shape[3], count),
        packs(shape[1] / channels_of_pack, count) {}

  __device__ PackPosition operator[](int64_t i) const {
    const auto [position, channel_pack] = packs.divide(i);
    const auto [line, column] = columns.divide(position);
    const auto [image, row] = rows.divide(line);
    return {image, static_cast<int>(row), static_cast<int>(column), channel_pack * pack};
  }
};

struct Pooling {
  Axis vertical, horizontal;
  int64_t channels;
  bool include_padding;

  Pooling(const Shape& x, const Shape& y, const PoolGeometry& g, bool padding_counts)
      : vertical(axis(x, y, g, 0)),
        horizontal(axis(x, y, g, 1)),
        channels(x[1]),
        include_padding(padding_counts) {}

  // Return the offset of element [image, row, column, channel] in x and in y.
  __device__ int64_t in_x(int64_t image, int row, int column, int64_t channel) const {
    return ((image * vertical.extent + row) * horizontal.extent + column) * channels + channel;
  }
  __device__ int64_t in_y(int64_t image, int row, int column, int64_t channel) const {
    return ((image * vertical.windows + row) * horizontal.windows + column) * channels + channel;
  }
  // Returns the weight of each covered element in the mean of a window.
  __device__ float share(const Range& rows, const Range& columns) const {
    const int area = include_padding ? vertical.kernel * horizontal.kernel
                                     : (rows.end - rows.begin) * (columns.end - columns.begin);
    return __fdividef(1.0f, static_cast<float>(area));
  }

 private:
  static Axis axis(const Shape& x, const Shape& y, const PoolGeometry& g, size_t i) {
    const int dimension = 2 + static_cast<int>(i);
    return {static_cast<int>(x[dimension]), static_cast<int>(y[dimension]),
            static_cast<int>(g.kernel[i]),  static_cast<int>(g.stride[i]),
            static_cast<int>(g.padding[i]), Divisor(g.stride[i], x[dimension] + g.padding[i])};
  }
};

// The workspace holds the index of the maximum within its window, in row-major order.
template <int N, class T, class ArgMax>
__global__ void __launch_bounds__(kPoolThreads)
    max_forward(Pooling p, PackPositions positions, const T* x, T* y, ArgMax* argmaxes) {
  const int64_t i = int64_t{blockIdx.x} * kPoolThreads + threadIdx.x;
  if (i >= positions.count) return;
  const PackPosition at = positions[i];
  const Range rows = p.vertical.covered(at.row), columns = p.horizontal.covered(at.column);
  const int top = p.vertical.start(at.row), left = p.horizontal.start(at.column);
  Pack<float, N> best{};
  Pack<int, N> argmax{};
  bool first = true;
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* from = x + p.in_x(at.image, row, columns.begin, at.channel);
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> values = to_float(load<N>(from));
      const int index = (row - top) * p.horizontal.kernel + column - left;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (!first && !(values.values[k] > best.values[k])) continue;
        best.values[k] = values.values[k];
        argmax.values[k] = index;
      }
      first = false;
    }
  }
  store(y + i * N, from_float<T>(best));
  if (!argmaxes) return;
  Pack<ArgMax, N> stored;
#pragma unroll
  for (int k = 0; k < N; ++k) stored.values[k] = static_cast<ArgMax>(argmax.values[k]);
  store(argmaxes + i * N, stored);
}

template <int N, class T, class ArgMax>
__global__ void __launch_bounds__(kPoolThreads)
    max_backward(Pooling p, PackPositions positions, const T* dy, const ArgMax* argmaxes, T* dx) {
  const int64_t i = int64_t{blockIdx.x} * kPoolThreads + threadIdx.x;
  if (i >= positions.count) return;
  const PackPosition at = positions[i];
  const Range rows = p.vertical.covering(at.row), columns = p.horizontal.covering(at.column);
  Pack<float, N> sum{};
  for (int row = rows.begin; row < rows.end; ++row) {
    int64_t from = p.in_y(at.image, row, columns.begin, at.channel);
#pragma unroll 1
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> gradient = to_float(load<N>(dy + from));
      const auto argmax = load<N>(argmaxes + from);
      const int index = (at.row - p.vertical.start(row)) * p.horizontal.kernel + at.column -
                        p.horizontal.start(column);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (static_cast<int>(argmax.values[k]) == index) sum.values[k] += gradient.values[k];
      }
    }
  }
  store(dx + i * N, from_float<T>(sum));
}

template <int N, class T>
__global__ void __launch_bounds__(kPoolThreads)
    average_forward(Pooling p, PackPositions positions, const T* x, T* y) {
  const int64_t i = int64_t{blockIdx.x} * kPoolThreads + threadIdx.x;
  if (i >= positions.count) return;
  const PackPosition at = positions[i];
  const Range rows = p.vertical.covered(at.row), columns = p.horizontal.covered(at.column);
  Pack<float, N> sum{};
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* from = x + p.in_x(at.image, row, columns.begin, at.channel);
#pragma unroll 4
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> values = to_float(load<N>(from));
#pragma unroll
      for (int k = 0; k < N; ++k) sum.values[k] += values.values[k];
    }
  }
  const float share = p.share(rows, columns);
#pragma unroll
  for (int k = 0; k < N; ++k) sum.values[k] *= share;
  store(y + i * N, from_float<T>(sum));
}

template <int N, class T>
__global__ void __launch_bounds__(kPoolThreads)
    average_backward(Pooling p, PackPositions positions, const T* dy, T* dx) {
  const int64_t i = int64_t{blockIdx.x} * kPoolThreads + threadIdx.x;
  if (i >= positions.count) return;
  const PackPosition at = positions[i];
  const Range rows = p.vertical.covering(at.row), columns = p.horizontal.covering(at.column);
  Pack<float, N> sum{};
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* from = dy + p.in_y(at.image, row, columns.begin, at.channel);
#pragma unroll 1
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> gradient = to_float(load<N>(from));
      const float share = p.share(p.vertical.covered(row), p.horizontal.covered(column));
#pragma unroll
      for (int k = 0; k < N; ++k) sum.values[k] += gradient.values[k] * share;
    }
  }
  store(dx + i * N, from_float<T>(sum));
}

std::vector<TensorSpec> in_channels_last(Specs given, std::initializer_list<int> images) {
  std::vector<TensorSpec> specs(given.begin(), given.end());
  for (int image : images) specs[image].layout = Layout::channels_last();
  return specs;
}

// Calls f(N) with the number of channels per thread as a std::integral_constant.
template <class T, class F, class... Pointers>
void with_pack(int64_t channels, F f, const Pointers*... pointers) {
  constexpr int kSize = kPackSize<T>;
  if (channels % kSize == 0 && is_aligned<kSize>(pointers...)) {
    f(std::integral_constant<int, kSize>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

// Calls f(ArgMax()) with the type in which indices within a window are stored.
template <class F>
Plan with_argmax_type(const PoolGeometry& geometry, F f) {
  if (geometry.kernel[0] * geometry.kernel[1] <= 256) return f(uint8_t());
  return f(int32_t());
}

template <class... Parameters, class... Arguments>
void launch_positions(const char* name, void (*kernel)(Pooling, PackPositions, Parameters...),
                      Stream& stream, const Pooling& pooling, const PackPositions& positions,
                      Arguments... arguments) {
  const trireme::cuda::Grid grid{.blocks = blocks_of(positions.count, kPoolThreads),
                                 .threads = dim3(kPoolThreads)};
  trireme::cuda::launch(name, kernel, grid, stream, pooling, positions, arguments...);
}

template <class T, class ArgMax>
Plan plan_max_forward(const PoolGeometry& geometry, std::vector<TensorSpec> specs) {
  using Op = MaxPoolForward;
  const Shape y_shape = specs[Op::kY].shape;
  const Pooling pooling(specs[Op::kX].shape, y_shape, geometry, false);
  if (!is_absent(specs[Op::kWorkspace])) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(ArgMax));
    specs[Op::kWorkspace] = {DType::kU8, {y_shape.elements() * kBytes}, Layout::row_major()};
  }
  return function_op(std::move(specs), [pooling, y_shape](Stream& stream, Args args, void*) {
    const auto* x = pointer<const T>(args, Op::kX);
    auto* y = pointer<T>(args, Op::kY);
    auto* argmaxes = pointer<ArgMax>(args, Op::kWorkspace);
    with_pack<T>(
        pooling.channels,
        [&](auto n) {
          launch_positions("max_pool_forward", max_forward<n(), T, ArgMax>, stream, pooling,
                           PackPositions(y_shape, n()), x, y, argmaxes);
        },
        x, y, argmaxes);
  });
}

template <class T, class ArgMax>
Plan plan_max_backward(const PoolGeometry& geometry, std::vector<TensorSpec> specs) {
  using Op = MaxPoolBackward;
  const Shape x_shape = specs[Op::kDx].shape;
  const Pooling pooling(x_shape, specs[Op::kDy].shape, geometry, false);
  return function_op(std::move(specs), [pooling, x_shape](Stream& stream, Args args, void*) {
    const auto* dy = pointer<const T>(args, Op::kDy);
    const auto* argmaxes = pointer<const ArgMax>(args, Op::kWorkspace);
    auto* dx = pointer<T>(args, Op::kDx);
    with_pack<T>(
        pooling.channels,
        [&](auto n) {
          launch_positions("max_pool_backward", max_backward<n(), T, ArgMax>, stream, pooling,
                           PackPositions(x_shape, n()), dy, argmaxes, dx);
        },
        dy, argmaxes, dx);
  });
}

}  // namespace

Plan plan(const MaxPoolForward& op, const ContextPtr&, Specs given) {
  using Op = MaxPoolForward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kX, Op::kY});
  return with_element(specs[Op::kY].dtype, [&]<class T>(T) {
    return with_argmax_type(op.geometry, [&]<class ArgMax>(ArgMax) {
      return plan_max_forward<T, ArgMax>(op.geometry, std::move(specs));
    });
  });
}

Plan plan(const MaxPoolBackward& op, const ContextPtr&, Specs given) {
  using Op = MaxPoolBackward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kDy, Op::kDx});
  return with_element(specs[Op::kDx].dtype, [&]<class T>(T) {
    return with_argmax_type(op.geometry, [&]<class ArgMax>(ArgMax) {
      return plan_max_backward<T, ArgMax>(op.geometry, std::move(specs));
    });
  });
}

Plan plan(const AveragePoolForward& op, const ContextPtr&, Specs given) {
  using Op = AveragePoolForward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kX, Op::kY});
  const Shape y_shape = specs[Op::kY].shape;
  const Pooling pooling(specs[Op::kX].shape, y_shape, op.geometry, op.include_padding);
  return with_element(specs[Op::kY].dtype, [&]<class T>(T) {
    return function_op(std::move(specs), [pooling, y_shape](Stream& stream, Args args, void*) {
      const auto* x = pointer<const T>(args, Op::kX);
      auto* y = pointer<T>(args, Op::kY);
      with_pack<T>(
          pooling.channels,
          [&](auto n) {
            launch_positions("average_pool_forward", average_forward<n(), T>, stream, pooling,
                             PackPositions(y_shape, n()), x, y);
          },
          x, y);
    });
  });
}

Plan plan(const AveragePoolBackward& op, const ContextPtr&, Specs given) {
  using Op = AveragePoolBackward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kDy, Op::kDx});
  const Shape x_shape = specs[Op::kDx].shape;
  const Pooling pooling(x_shape, specs[Op::kDy].shape, op.geometry, op.include_padding);
  return with_element(specs[Op::kDx].dtype, [&]<class T>(T) {
    return function_op(std::move(specs), [pooling, x_shape](Stream& stream, Args args, void*) {
      const auto* dy = pointer<const T>(args, Op::kDy);
      auto* dx = pointer<T>(args, Op::kDx);
      with_pack<T>(
          pooling.channels,
          [&](auto n) {
            launch_positions("average_pool_backward", average_backward<n(), T>, stream, pooling,
                             PackPositions(x_shape, n()), dy, dx);
          },
          dy, dx);
    });
  });
}

}  // namespace trireme::ops::cuda
