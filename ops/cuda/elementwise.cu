#include <algorithm>

#include "ops/choose_layouts.h"
#include "ops/cuda/divisor.h"
#include "ops/cuda/map.h"
#include "ops/cuda/plans.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cuda {
namespace {

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Geometry of a concatenation in bytes. Each row of the whole consists of a piece of every part.
// Rows are samples in row-major order, positions in channels-last order.
struct JoinGeometry {
  int64_t rows = 0;
  int64_t row_bytes = 0;
  std::vector<int64_t> piece_bytes;  // of each part
};

constexpr int kMoveThreads = 256;
constexpr int kMoveUnits = 4;   // per thread, so that enough reads are in flight
constexpr int kMoveParts = 16;  // per launch

// A part. Sizes are in units of up to 16 bytes, in which memory is copied.
struct Part {
  void* memory = nullptr;
  int64_t units = 0;
  int64_t offset = 0;  // of the piece in a row of the whole
  Divisor piece_units;
};
struct Parts {
  Part part[kMoveParts];
};

// Block y copies part y: into the whole to join, out of it to split.
template <class Unit, bool kJoin>
__global__ void __launch_bounds__(kMoveThreads)
    move_kernel(const __grid_constant__ Parts parts, Unit* whole, int64_t row_units) {
  const Part& part = parts.part[blockIdx.y];
  auto* units = static_cast<Unit*>(part.memory);
  const int64_t first = int64_t{blockIdx.x} * kMoveThreads * kMoveUnits + threadIdx.x;
  Unit values[kMoveUnits];
  Unit* in_whole[kMoveUnits];
#pragma unroll
  for (int k = 0; k < kMoveUnits; ++k) {
    const int64_t at = first + k * kMoveThreads;
    if (at >= part.units) break;
    const auto [row, place] = part.piece_units.divide(at);
    in_whole[k] = whole + row * row_units + part.offset + place;
    values[k] = kJoin ? units[at] : *in_whole[k];
  }
#pragma unroll
  for (int k = 0; k < kMoveUnits; ++k) {
    const int64_t at = first + k * kMoveThreads;
    if (at >= part.units) break;
    (kJoin ? *in_whole[k] : units[at]) = values[k];
  }
}

// Calls f with the largest unit that divides all sizes and addresses, which are or-ed in `bits`.
template <class F>
void with_unit(uintptr_t bits, F f) {
  if (bits % 16 == 0) return f(uint4());
  if (bits % 8 == 0) return f(uint2());
  if (bits % 4 == 0) return f(uint32_t());
  if (bits % 2 == 0) return f(uint16_t());
  f(uint8_t());
}

template <class Unit, bool kJoin>
void move_units(Stream& stream, const JoinGeometry& join, Args args) {
  constexpr auto kUnit = static_cast<int64_t>(sizeof(Unit));
  int64_t offset = 0;
  for (size_t done = 0; done < join.piece_bytes.size(); done += kMoveParts) {
    const size_t count = std::min<size_t>(kMoveParts, join.piece_bytes.size() - done);
    Parts parts;
    int64_t largest = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t piece = join.piece_bytes[done + i] / kUnit;
      const int64_t units = join.rows * piece;
      parts.part[i] = {args[1 + done + i], units, offset,
                       Divisor(std::max<int64_t>(piece, 1), units)};
      offset += piece;
      largest = std::max(largest, units);
    }
    trireme::cuda::Grid grid{.blocks = blocks_of(largest, kMoveThreads * kMoveUnits),
                             .threads = dim3(kMoveThreads)};
    grid.blocks.y = static_cast<unsigned>(count);
    trireme::cuda::launch(kJoin ? "concat" : "split", move_kernel<Unit, kJoin>, grid, stream, parts,
                          pointer<Unit>(args, 0), join.row_bytes / kUnit);
  }
}

// `given` and args: the whole, then the parts.
template <bool kJoin>
Plan plan_join(Specs given) {
  const auto known = std::find_if(given.begin(), given.end(),
                                  [](const TensorSpec& spec) { return !spec.layout.is_any(); });
  const Layout layout = known == given.end() ? Layout::row_major() : known->layout;
  std::vector<TensorSpec> specs;
  for (const TensorSpec& spec : given) specs.push_back(spec.with(layout));

  const Shape& whole = specs[0].shape;
  JoinGeometry join;
  join.rows = layout == Layout::channels_last() ? whole.elements() / whole[1] : whole[0];
  const auto row_bytes = [&](const TensorSpec& spec) {
    return static_cast<int64_t>(spec.bytes()) / join.rows;
  };
  join.row_bytes = row_bytes(specs[0]);
  for (size_t i = 1; i < specs.size(); ++i) join.piece_bytes.push_back(row_bytes(specs[i]));

  return function_op(std::move(specs), [join](Stream& stream, Args args, void*) {
    uintptr_t bits = 0;
    for (int64_t bytes : join.piece_bytes) bits |= static_cast<uintptr_t>(bytes);
    for (void* arg : args) bits |= reinterpret_cast<uintptr_t>(arg);
    with_unit(bits, [&]<class Unit>(Unit) { move_units<Unit, kJoin>(stream, join, args); });
  });
}

}  // namespace

Plan plan(const Add&, const ContextPtr&, Specs given) {
  using Op = Add;
  std::vector<TensorSpec> specs = in_one_layout(given);
  const int64_t count = specs[Op::kY].shape.elements();
  return with_element(specs[Op::kY].dtype, [&]<class T>(T) {
    return function_op(std::move(specs), [count](Stream& stream, Args args, void*) {
      map("add", stream, count, Sum(), pointer<T>(args, Op::kY), pointer<const T>(args, Op::kA),
          pointer<const T>(args, Op::kB));
    });
  });
}

Plan plan(const Concat&, const ContextPtr&, Specs given) { return plan_join<true>(given); }

Plan plan(const Split&, const ContextPtr&, Specs given) { return plan_join<false>(given); }

}  // namespace trireme::ops::cuda
