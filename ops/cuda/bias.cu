#include "ops/cuda/bias.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"

namespace trireme::ops::cuda {
namespace {

__device__ float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kSigmoid:
      return 1.0f / (1.0f + expf(-x));
    case Activation::kTanh:
      return tanhf(x);
    default:
      return x;
  }
}

template <class B>
struct AddAndActivate {
  Divisor channels;
  const B* bias;  // null if there is no bias
  Activation activation;

  template <int N, class T>
  __device__ Pack<T, N> operator()(int64_t at, const Pack<T, N>& y) const {
    int64_t channel = bias ? channels.divide(at).remainder : 0;
    Pack<T, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float x = to_float(y.values[i]);
      if (bias) {
        x += to_float(bias[channel]);
        if (++channel == channels.value()) channel = 0;
      }
      result.values[i] = from_float<T>(activate(activation, x));
    }
    return result;
  }
};

constexpr int kBiasRows = 4;  // that are read at a time

template <int N, class T>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    column_sums_kernel(const T* dy, int64_t rows, int64_t columns, double* partials) {
  __shared__ double shared[kColumnThreads * N];
  const int64_t column = first_column<N>();
  float sums[N] = {};
  if (column < columns) {
    each_row<kBiasRows, /*kBackwards=*/true>(rows, [&](int64_t row) {
      Pack<T, N> packs[kBiasRows] = {};
#pragma unroll
      for (int k = 0; k < kBiasRows; ++k) {
        const int64_t at = row + k * int64_t{blockDim.y};
        if (at < rows) packs[k] = load<N>(dy + at * columns + column);
      }
#pragma unroll
      for (const Pack<T, N>& pack : packs) {
#pragma unroll
        for (int i = 0; i < N; ++i) sums[i] += to_float(pack.values[i]);
      }
    });
  }
  double double_sums[N];
  const double unused[N] = {};
#pragma unroll
  for (int i = 0; i < N; ++i) double_sums[i] = sums[i];
  store_partials(double_sums, unused, shared, columns, partials);
}

ColumnGrid grid_of(int64_t rows, int64_t columns, int pack, Device& device) {
  return {rows, columns, pack, kBiasRows, kColumnBlocks, device};
}

template <class T>
struct StoreSum {
  T* to;
  bool accumulate;
  __device__ void operator()(int64_t column, double sum, double) const {
    const double before = accumulate ? to_float(to[column]) : 0.0f;
    to[column] = from_float<T>(static_cast<float>(before + sum));
  }
};

}  // namespace

BiasActivation::BiasActivation(const TensorSpec& y, const TensorSpec& bias, Activation activation)
    : y_(y.dtype),
      bias_(is_absent(bias) ? y.dtype : bias.dtype),
      count_(y.shape.elements()),
      channels_(y.shape[1]),
      activation_(activation) {}

void BiasActivation::encode(Stream& stream, void* y, const void* bias) const {
  with_element(y_, [&]<class T>(T) {
    with_element(bias_, [&]<class B>(B) {
      const AddAndActivate<B> f{Divisor(channels_, count_ + kPackSize<T>),
                                static_cast<const B*>(bias), activation_};
      map_packs("bias_activation", stream, count_, f, static_cast<T*>(y), static_cast<const T*>(y));
    });
  });
}

BiasGradient::BiasGradient(const TensorSpec& dy, const TensorSpec& dbias, bool accumulate,
                           Device& device)
    : device_(device),
      dy_(dy.dtype),
      dbias_(dbias.dtype),
      rows_(dy.shape.elements() / dy.shape[1]),
      channels_(dy.shape[1]),
      accumulate_(accumulate) {
  scratch_bytes_ = with_pack(dy_, channels_, [&]<class T>(T, auto pack) {
    return grid_of(rows_, channels_, pack, device_).partial_bytes();
  });
}

void BiasGradient::encode(Stream& stream, const void* dy, void* dbias, void* scratch) const {
  with_pack(dy_, channels_, [&]<class T>(T, auto pack) {
    const ColumnGrid columns = grid_of(rows_, channels_, pack, device_);
    trireme::cuda::launch("bias_gradient", column_sums_kernel<pack(), T>, columns.grid, stream,
                          static_cast<const T*>(dy), rows_, channels_,
                          static_cast<double*>(scratch));
    with_element(dbias_, [&]<class B>(B) {
      merge("bias_gradient", stream, scratch, columns.slabs, channels_,
            StoreSum<B>{static_cast<B*>(dbias), accumulate_});
    });
  });
}

}  // namespace trireme::ops::cuda
