#include <memory>

#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/upload.h"
#include "ops/function_op.h"
#include "ops/rotary.h"
#include "ops/row_positions.h"

namespace trireme::ops::cuda {
namespace {

// A warp or a block has a row; packs of N elements lie within half a head. y may be x.
template <class T, int N>
__global__ void __launch_bounds__(kMaxRowThreads)
    rotary_kernel(const T* x, const float* table, int64_t rows, int64_t columns,
                  RowPositions position, int64_t heads, int64_t half, T* y) {
  const int64_t row = row_of_thread();
  if (row >= rows) return;
  x += row * columns;
  y += row * columns;
  table += position(row) * 2 * half;
  each_pack<N>(heads * half, [&](int64_t place) {
    const int64_t in_half = place % half, at = place / half * 2 * half + in_half;
    Pack<float, N> first = to_float(load<N>(x + at)), second = to_float(load<N>(x + at + half));
    const Pack<float, 2 * N> angles = load<2 * N>(table + 2 * in_half);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float a = first.values[i], b = second.values[i];
      const float cosine = angles.values[2 * i], sine = angles.values[2 * i + 1];
      first.values[i] = a * cosine - b * sine;
      second.values[i] = b * cosine + a * sine;
    }
    store(y + at, from_float<T>(first));
    store(y + at + half, from_float<T>(second));
  });
  if (x == y) return;
  const int64_t rotated = heads * 2 * half;
  each_pack<N>(columns - rotated,
               [&](int64_t at) { store(y + rotated + at, load<N>(x + rotated + at)); });
}

}  // namespace

Plan plan(const Rotary& op, const ContextPtr& context, Specs given) {
  using Op = Rotary;
  const int64_t rows = given[Op::kX].shape[0], columns = given[Op::kX].shape[1];
  const int64_t half = op.head_dim / 2;
  const auto table = std::make_shared<const Buffer>(upload(context->device, rotary_table(op)));
  // Of both packs must divide half a head and the rest of a row.
  const int64_t multiple = columns % half == 0 ? half : 1;
  const int64_t part = part_rows(given[Op::kStarts], rows);
  return with_pack(given[Op::kX].dtype, multiple, [&]<class T, int N>(T, Size<N>) -> Plan {
    const trireme::cuda::Grid grid = row_grid(rows, columns / N);
    return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
      const RowPositions position{pointer<int32_t>(args, Op::kStarts), part, op.length};
      trireme::cuda::launch("rotary", rotary_kernel<T, N>, grid, stream, pointer<T>(args, Op::kX),
                            table->as<float>(), rows, columns, position, op.heads, half,
                            pointer<T>(args, Op::kY));
    });
  });
}

}  // namespace trireme::ops::cuda
