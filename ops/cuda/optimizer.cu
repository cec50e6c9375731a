// Optimizer updates in one pass over the flat arrays, a block for each piece of a range.
#include <algorithm>
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "core/cuda/launch.h"
#include "ops/cuda/context.h"
#include "ops/cuda/element.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/upload.h"
#include "ops/function_op.h"
#include "ops/loss_scale.h"
#include "ops/optimizer.h"
#include "ops/settle.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

constexpr int64_t kPiece = 1 << 13;
constexpr int kThreads = 256;
constexpr int kSumThreads = 1024;
constexpr int kQuad = 4;  // elements that a thread reads at once

// Pieces end at multiples of kPiece, so that all but the first of a range begin at a quad.
std::vector<UpdateRange> cut(const std::vector<UpdateRange>& ranges) {
  std::vector<UpdateRange> pieces;
  for (const UpdateRange& range : ranges) {
    for (int64_t begin = range.begin; begin < range.end; begin = pieces.back().end) {
      UpdateRange piece = range;
      piece.begin = begin;
      piece.end = std::min((begin / kPiece + 1) * kPiece, range.end);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// In device memory, for block i to find the i-th.
class Pieces {
 public:
  Pieces(const std::vector<UpdateRange>& ranges, Device& device) {
    const std::vector<UpdateRange> pieces = cut(ranges);
    count_ = pieces.size();
    if (count_ > 0) table_ = upload(device, pieces);
  }

  size_t count() const { return count_; }
  // Launches the kernel with the table as its first argument, unless there is nothing to do.
  template <class Kernel, class... Arguments>
  void launch_each(const char* name, Kernel kernel, Stream& stream, Arguments... arguments) const {
    if (count_ == 0) return;
    const trireme::cuda::Grid grid{.blocks = dim3(static_cast<unsigned>(count_)),
                                   .threads = dim3(kThreads)};
    trireme::cuda::launch(name, kernel, grid, stream, table_.as<UpdateRange>(), arguments...);
  }

 private:
  Buffer table_;
  size_t count_ = 0;
};

// Four neighbours from a place divisible by four on, of which [first, last) are in the piece.
struct Quad {
  int64_t at;
  int first, last;

  __device__ bool is_whole() const { return first == 0 && last == kQuad; }
};

template <class F>
__device__ void each_quad(const UpdateRange& piece, F f) {
  const int64_t begin = piece.begin / kQuad * kQuad;
  for (int64_t at = begin + threadIdx.x * kQuad; at < piece.end; at += kThreads * kQuad) {
    f(Quad{at, static_cast<int>(max(piece.begin - at, int64_t{0})),
           static_cast<int>(min(piece.end - at, int64_t{kQuad}))});
  }
}

// Zeros where the quad is not in the piece.
__device__ Pack<float, kQuad> load(const float* x, const Quad& quad) {
  if (quad.is_whole()) return *reinterpret_cast<const Pack<float, kQuad>*>(x + quad.at);
  Pack<float, kQuad> values{};
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (i >= quad.first && i < quad.last) values.values[i] = x[quad.at + i];
  }
  return values;
}

template <class T>
__device__ void store(T* to, const Quad& quad, const Pack<float, kQuad>& values) {
  const Pack<T, kQuad> pack = from_float<T>(values);
  if (quad.is_whole()) {
    *reinterpret_cast<Pack<T, kQuad>*>(to + quad.at) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (i >= quad.first && i < quad.last) to[quad.at + i] = pack.values[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    squares_kernel(const UpdateRange* pieces, const float* x, double* sums) {
  double sum = 0;
  each_quad(pieces[blockIdx.x], [&](const Quad& quad) {
    const Pack<float, kQuad> values = load(x, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) sum += double{values.values[i]} * values.values[i];
  });
  sum = row_reduce(sum, Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(const double* sums, int64_t counted, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) {
    sum += i < counted ? sums[i] : 0 * sums[i];
  }
  sum = row_reduce(sum, Plus());
  if (threadIdx.x == 0) *total = sum;
}

// What is the same for all elements in a step.
template <class Rule>
struct StepNumbers {
  bool skipped;
  float gradient_factor;  // one over the loss scale, and what takes the norm down to max_norm
  float learning_rate;
  typename Rule::Step step;
};

template <class Rule>
__global__ void numbers_kernel(Rule rule, float max_norm, const double* squares,
                               const LossScale* loss_scale, const StepState* state,
                               StepNumbers<Rule>* numbers) {
  numbers->skipped = loss_scale && !isfinite(*squares);
  const double unscaled = loss_scale ? 1 / static_cast<double>(loss_scale->scale) : 1;
  const double norm = max_norm > 0 ? sqrt(*squares) * unscaled : 0;
  numbers->gradient_factor =
      static_cast<float>(norm > max_norm ? unscaled * max_norm / norm : unscaled);
  numbers->learning_rate = state->learning_rate;
  numbers->step =
      rule.at_step(static_cast<double>(state->step + 1 - (loss_scale ? loss_scale->skipped : 0)));
}

template <class Rule, class Low, int... I>
__global__ void __launch_bounds__(kThreads)
    update_kernel(const UpdateRange* pieces, Rule rule, const StepNumbers<Rule>* numbers,
                  float* parameters, const float* gradients, Low* low,
                  std::array<float*, kMaxSlots> slots, std::integer_sequence<int, I...>) {
  const StepNumbers<Rule> step = *numbers;
  if (step.skipped) return;
  const UpdateRange piece = pieces[blockIdx.x];
  const RangeNumbers<float> range{step.learning_rate * piece.learning_rate_scale,
                                  piece.weight_decay};
  const auto n = rule.numbers(step.step, range);
  each_quad(piece, [&](const Quad& quad) {
    Pack<float, kQuad> p = load(parameters, quad);
    Pack<float, kQuad> s[kMaxSlots] = {load(slots[I], quad)...};
    const Pack<float, kQuad> g = load(gradients, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      Rule::apply(n, g.values[i] * step.gradient_factor, p.values[i], s[I].values[i]...);
    }
    (store(slots[I], quad, s[I]), ...);
    store(parameters, quad, p);
    if (low) store(low, quad, p);
  });
}

// Calls f(T()) with the dtype of the copy in low precision, or any where there is none.
template <class F>
Plan with_low_precision(const TensorSpec& low, F f) {
  return with_element(is_absent(low) ? DType::kF32 : low.dtype, f);
}

template <class Rule, int... I>
Plan plan_update(const Rule& rule, const Update& op, Pieces pieces, Specs given,
                 std::integer_sequence<int, I...> slots) {
  using Op = Update;
  return with_low_precision(given[Op::kLowPrecision], [&]<class Low>(Low) {
    return function_op(
        in_row_major(given),
        [rule, slots, max_norm = op.max_norm, pieces = std::move(pieces)](Stream& stream, Args args,
                                                                          void* scratch) {
          auto* numbers = static_cast<StepNumbers<Rule>*>(scratch);
          trireme::cuda::launch("update", numbers_kernel<Rule>,
                                {.blocks = dim3(1), .threads = dim3(1)}, stream, rule, max_norm,
                                pointer<double>(args, Op::kSquares),
                                pointer<LossScale>(args, Op::kLossScale),
                                pointer<StepState>(args, Op::kState), numbers);
          pieces.launch_each(
              "update", update_kernel<Rule, Low, I...>, stream, rule, numbers,
              pointer<float>(args, Op::kParameters), pointer<float>(args, Op::kGradients),
              pointer<Low>(args, Op::kLowPrecision),
              std::array<float*, kMaxSlots>{pointer<float>(args, Op::kSlots + I)...}, slots);
        },
        sizeof(StepNumbers<Rule>));
  });
}

}  // namespace

Plan plan(const SumOfSquares& op, const ContextPtr& context, Specs given) {
  using Op = SumOfSquares;
  std::vector<UpdateRange> all = op.ranges;
  all.insert(all.end(), op.watched.begin(), op.watched.end());
  Pieces pieces(all, context->device);
  const auto counted = static_cast<int64_t>(cut(op.ranges).size());
  const size_t scratch_bytes = pieces.count() * sizeof(double);
  return function_op(
      in_row_major(given),
      [pieces = std::move(pieces), counted](Stream& stream, Args args, void* scratch) {
        auto* sums = static_cast<double*>(scratch);
        pieces.launch_each("sum_of_squares", squares_kernel, stream, pointer<float>(args, Op::kX),
                           sums);
        trireme::cuda::launch(
            "sum_of_squares", sum_kernel, {.blocks = dim3(1), .threads = dim3(kSumThreads)}, stream,
            sums, counted, static_cast<int64_t>(pieces.count()), pointer<double>(args, Op::kSum));
      },
      scratch_bytes);
}

Plan plan(const Update& op, const ContextPtr& context, Specs given) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) {
        return plan_update(rule, op, Pieces(op.ranges, context->device), given,
                           SlotNumbers<Rule>());
      },
      op.rule);
}

}  // namespace trireme::ops::cuda
