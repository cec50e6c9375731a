// Reorder: converts the layout, the dtype, or both at once.
#include <type_traits>

#include "ops/cuda/map.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/transpose.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

// Rounds to the nearest value of the dtype, ties to even.
template <class To, class From>
__device__ To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    return from_float<To>(to_float(x));
  }
}

template <class To>
struct Convert {
  // Converts packs in order.
  template <int N, class From>
  __device__ Pack<To, N> operator()(int64_t, const Pack<From, N>& x) const {
    Pack<To, N> y;
#pragma unroll
    for (int i = 0; i < N; ++i) y.values[i] = convert<To>(x.values[i]);
    return y;
  }
  // Converts an element in a transpose.
  template <class From>
  __device__ To operator()(From x, int64_t, int64_t) const {
    return convert<To>(x);
  }
};

template <class From, class To>
Plan plan_reorder(std::vector<TensorSpec> specs) {
  using Op = Reorder;
  const TensorSpec& from = specs[Op::kFrom];
  if (same_order(from.shape, from.layout, specs[Op::kTo].layout)) {
    const int64_t count = from.shape.elements();
    return function_op(std::move(specs), [count](Stream& stream, Args args, void*) {
      map_packs("reorder", stream, count, Convert<To>(), pointer<To>(args, Op::kTo),
                pointer<const From>(args, Op::kFrom));
    });
  }
  const Matrices matrices = matrices_of(from.shape, from.layout);
  return function_op(std::move(specs), [matrices](Stream& stream, Args args, void*) {
    transpose("reorder", stream, matrices, Convert<To>(), pointer<const From>(args, Op::kFrom),
              pointer<To>(args, Op::kTo));
  });
}

}  // namespace

Plan plan(const Reorder&, const ContextPtr&, Specs given) {
  using Op = Reorder;
  std::vector<TensorSpec> specs(given.begin(), given.end());
  if (specs[Op::kFrom].layout.is_any()) specs[Op::kFrom].layout = Layout::row_major();
  if (specs[Op::kTo].layout.is_any()) specs[Op::kTo].layout = specs[Op::kFrom].layout;
  const DType from = specs[Op::kFrom].dtype;
  if (from == DType::kI32) return plan_reorder<int32_t, int32_t>(std::move(specs));
  if (from == DType::kU8) return plan_reorder<uint8_t, uint8_t>(std::move(specs));
  return with_element(from, [&]<class From>(From) {
    return with_element(specs[Op::kTo].dtype,
                        [&]<class To>(To) { return plan_reorder<From, To>(std::move(specs)); });
  });
}

}  // namespace trireme::ops::cuda
