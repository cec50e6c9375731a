// Pooling, in channels-last order: a thread makes a pack of channels at one position. Backward, it
// gathers from all windows that its position is in, in a fixed order, and nothing is added by two
// threads.
#include <type_traits>

#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"
#include "ops/pool.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Range {
  int begin, end;
};

// Windows in one of their two directions.
struct Axis {
  int extent;   // of x
  int windows;  // of y
  int kernel, stride, padding;
  Divisor by_stride;

  // Where a window begins, maybe in the padding.
  __device__ int start(int window) const { return window * stride - padding; }
  // What it covers of x.
  __device__ Range covered(int window) const {
    return {max(start(window), 0), min(start(window) + kernel, extent)};
  }
  // The windows that cover a place of x.
  __device__ Range covering(int place) const {
    const int padded = place + padding;
    const int first = padded < kernel ? 0 : quotient(padded - kernel) + 1;
    return {first, min(quotient(padded) + 1, windows)};
  }

 private:
  __device__ int quotient(int n) const { return static_cast<int>(by_stride.divide(n).quotient); }
};

// A pack of channels at one position of an image.
struct Place {
  int64_t image;
  int row, column;
  int64_t channel;  // the first
};

// The packs of all positions of all images.
struct Places {
  int64_t count;
  int pack;
  Divisor rows, columns, packs;

  Places(const Shape& shape, int channels_of_pack)
      : count(shape.elements() / channels_of_pack),
        pack(channels_of_pack),
        rows(shape[2], count),
        columns(shape[3], count),
        packs(shape[1] / channels_of_pack, count) {}

  __device__ Place operator[](int64_t i) const {
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

  // Of element [image, row, column, channel] in x and in y.
  __device__ int64_t in_x(int64_t image, int row, int column, int64_t channel) const {
    return ((image * vertical.extent + row) * horizontal.extent + column) * channels + channel;
  }
  __device__ int64_t in_y(int64_t image, int row, int column, int64_t channel) const {
    return ((image * vertical.windows + row) * horizontal.windows + column) * channels + channel;
  }
  // What each place that a window covers counts for in its mean.
  __device__ float share(const Range& rows, const Range& columns) const {
    const int places = include_padding ? vertical.kernel * horizontal.kernel
                                       : (rows.end - rows.begin) * (columns.end - columns.begin);
    return __fdividef(1.0f, static_cast<float>(places));
  }

 private:
  static Axis axis(const Shape& x, const Shape& y, const PoolGeometry& g, size_t i) {
    const int dimension = 2 + static_cast<int>(i);
    return {static_cast<int>(x[dimension]), static_cast<int>(y[dimension]),
            static_cast<int>(g.kernel[i]),  static_cast<int>(g.stride[i]),
            static_cast<int>(g.padding[i]), Divisor(g.stride[i], x[dimension] + g.padding[i])};
  }
};

// A winner is its place in the window, in row-major order.
template <int N, class T, class Winner>
__global__ void __launch_bounds__(kThreads)
    max_forward(Pooling p, Places places, const T* x, T* y, Winner* winners) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places.count) return;
  const Place at = places[i];
  const Range rows = p.vertical.covered(at.row), columns = p.horizontal.covered(at.column);
  const int top = p.vertical.start(at.row), left = p.horizontal.start(at.column);
  Pack<float, N> best{};
  Pack<int, N> winner{};
  bool first = true;
  for (int row = rows.begin; row < rows.end; ++row) {
    const T* from = x + p.in_x(at.image, row, columns.begin, at.channel);
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> values = to_float(load<N>(from));
      const int place = (row - top) * p.horizontal.kernel + column - left;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (!first && !(values.values[k] > best.values[k])) continue;
        best.values[k] = values.values[k];
        winner.values[k] = place;
      }
      first = false;
    }
  }
  store(y + i * N, from_float<T>(best));
  if (!winners) return;
  Pack<Winner, N> remembered;
#pragma unroll
  for (int k = 0; k < N; ++k) remembered.values[k] = static_cast<Winner>(winner.values[k]);
  store(winners + i * N, remembered);
}

template <int N, class T, class Winner>
__global__ void __launch_bounds__(kThreads)
    max_backward(Pooling p, Places places, const T* dy, const Winner* winners, T* dx) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places.count) return;
  const Place at = places[i];
  const Range rows = p.vertical.covering(at.row), columns = p.horizontal.covering(at.column);
  Pack<float, N> sum{};
  for (int row = rows.begin; row < rows.end; ++row) {
    int64_t from = p.in_y(at.image, row, columns.begin, at.channel);
#pragma unroll 1
    for (int column = columns.begin; column < columns.end; ++column, from += p.channels) {
      const Pack<float, N> gradient = to_float(load<N>(dy + from));
      const auto winner = load<N>(winners + from);
      const int place = (at.row - p.vertical.start(row)) * p.horizontal.kernel + at.column -
                        p.horizontal.start(column);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (static_cast<int>(winner.values[k]) == place) sum.values[k] += gradient.values[k];
      }
    }
  }
  store(dx + i * N, from_float<T>(sum));
}

template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    average_forward(Pooling p, Places places, const T* x, T* y) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places.count) return;
  const Place at = places[i];
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
__global__ void __launch_bounds__(kThreads)
    average_backward(Pooling p, Places places, const T* dy, T* dx) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= places.count) return;
  const Place at = places[i];
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

// Calls f(N) with the number of channels, a std::integral_constant, that a thread takes at once.
template <class T, class F, class... Pointers>
void with_pack(int64_t channels, F f, const Pointers*... pointers) {
  constexpr int kSize = kPackSize<T>;
  if (channels % kSize == 0 && is_aligned<kSize>(pointers...)) {
    f(std::integral_constant<int, kSize>());
  } else {
    f(std::integral_constant<int, 1>());
  }
}

// Calls f(Winner()) with the type that places in a window are remembered in.
template <class F>
Plan with_winner(const PoolGeometry& geometry, F f) {
  if (geometry.kernel[0] * geometry.kernel[1] <= 256) return f(uint8_t());
  return f(int32_t());
}

template <class... Parameters, class... Arguments>
void launch_places(const char* name, void (*kernel)(Pooling, Places, Parameters...), Stream& stream,
                   const Pooling& pooling, const Places& places, Arguments... arguments) {
  const trireme::cuda::Grid grid{.blocks = blocks_of(places.count, kThreads),
                                 .threads = dim3(kThreads)};
  trireme::cuda::launch(name, kernel, grid, stream, pooling, places, arguments...);
}

template <class T, class Winner>
Plan plan_max_forward(const PoolGeometry& geometry, std::vector<TensorSpec> specs) {
  using Op = MaxPoolForward;
  const Shape y_shape = specs[Op::kY].shape;
  const Pooling pooling(specs[Op::kX].shape, y_shape, geometry, false);
  if (!is_absent(specs[Op::kWorkspace])) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Winner));
    specs[Op::kWorkspace] = {DType::kU8, {y_shape.elements() * kBytes}, Layout::row_major()};
  }
  return function_op(std::move(specs), [pooling, y_shape](Stream& stream, Args args, void*) {
    const auto* x = pointer<const T>(args, Op::kX);
    auto* y = pointer<T>(args, Op::kY);
    auto* winners = pointer<Winner>(args, Op::kWorkspace);
    with_pack<T>(
        pooling.channels,
        [&](auto n) {
          launch_places("max_pool_forward", max_forward<n(), T, Winner>, stream, pooling,
                        Places(y_shape, n()), x, y, winners);
        },
        x, y, winners);
  });
}

template <class T, class Winner>
Plan plan_max_backward(const PoolGeometry& geometry, std::vector<TensorSpec> specs) {
  using Op = MaxPoolBackward;
  const Shape x_shape = specs[Op::kDx].shape;
  const Pooling pooling(x_shape, specs[Op::kDy].shape, geometry, false);
  return function_op(std::move(specs), [pooling, x_shape](Stream& stream, Args args, void*) {
    const auto* dy = pointer<const T>(args, Op::kDy);
    const auto* winners = pointer<const Winner>(args, Op::kWorkspace);
    auto* dx = pointer<T>(args, Op::kDx);
    with_pack<T>(
        pooling.channels,
        [&](auto n) {
          launch_places("max_pool_backward", max_backward<n(), T, Winner>, stream, pooling,
                        Places(x_shape, n()), dy, winners, dx);
        },
        dy, winners, dx);
  });
}

}  // namespace

Plan plan(const MaxPoolForward& op, const ContextPtr&, Specs given) {
  using Op = MaxPoolForward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kX, Op::kY});
  return with_element(specs[Op::kY].dtype, [&]<class T>(T) {
    return with_winner(op.geometry, [&]<class Winner>(Winner) {
      return plan_max_forward<T, Winner>(op.geometry, std::move(specs));
    });
  });
}

Plan plan(const MaxPoolBackward& op, const ContextPtr&, Specs given) {
  using Op = MaxPoolBackward;
  std::vector<TensorSpec> specs = in_channels_last(given, {Op::kDy, Op::kDx});
  return with_element(specs[Op::kDx].dtype, [&]<class T>(T) {
    return with_winner(op.geometry, [&]<class Winner>(Winner) {
      return plan_max_backward<T, Winner>(op.geometry, std::move(specs));
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
            launch_places("average_pool_forward", average_forward<n(), T>, stream, pooling,
                          Places(y_shape, n()), x, y);
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
            launch_places("average_pool_backward", average_backward<n(), T>, stream, pooling,
                          Places(x_shape, n()), dy, dx);
          },
          dy, dx);
    });
  });
}

}  // namespace trireme::ops::cuda
