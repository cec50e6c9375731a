// Optimizer updates in one pass over the flat arrays, with one block for each piece of a range.
#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/cuda/launch.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/element.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/cuda/upload.h"
#include "ops/function_op.h"
#include "ops/loss_scale.h"
#include "ops/optimizer.h"
#include "ops/step_state.h"

namespace trireme::ops::cuda {
namespace {

constexpr int64_t kPiece = 1 << 13;
constexpr int kUpdateThreads = 256;
constexpr int kQuad = 4;  // elements that a thread reads at a time

struct Piece : UpdateRange {
  int64_t range = 0;  // index of the range
};

// Splits ranges into pieces. Pieces end at multiples of kPiece, so that all but the first of a
// range begin at a quad.
std::vector<Piece> cut(const std::vector<UpdateRange>& ranges) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (int64_t begin = ranges[i].begin; begin < ranges[i].end; begin = pieces.back().end) {
      Piece piece{ranges[i], static_cast<int64_t>(i)};
      piece.begin = begin;
      piece.end = std::min((begin / kPiece + 1) * kPiece, ranges[i].end);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// The pieces in device memory; block i processes the i-th.
class Pieces {
 public:
  Pieces(const std::vector<UpdateRange>& ranges, Device& device) {
    const std::vector<Piece> pieces = cut(ranges);
    count_ = pieces.size();
    if (count_ > 0) table_ = upload(device, pieces);
  }

  size_t count() const { return count_; }
  // Launches the kernel with the table as its first argument, unless there are no pieces.
  template <class Kernel, class... Arguments>
  void launch_each(const char* name, Kernel kernel, Stream& stream, Arguments... arguments) const {
    if (count_ == 0) return;
    const trireme::cuda::Grid grid{.blocks = dim3(static_cast<unsigned>(count_)),
                                   .threads = dim3(kUpdateThreads)};
    trireme::cuda::launch(name, kernel, grid, stream, table_.as<Piece>(), arguments...);
  }

 private:
  Buffer table_;
  size_t count_ = 0;
};

// Four adjacent elements, starting at a multiple of four, of which [first, last) are in the piece.
struct Quad {
  int64_t at;
  int first, last;

  __device__ bool is_whole() const { return first == 0 && last == kQuad; }
};

template <class F>
__device__ void each_quad(const UpdateRange& piece, F f) {
  const int64_t begin = piece.begin / kQuad * kQuad;
  for (int64_t at = begin + threadIdx.x * kQuad; at < piece.end; at += kUpdateThreads * kQuad) {
    f(Quad{at, static_cast<int>(max(piece.begin - at, int64_t{0})),
           static_cast<int>(min(piece.end - at, int64_t{kQuad}))});
  }
}

// Loads a quad, with zeros for elements outside the piece.
__device__ Pack<float, kQuad> load_quad(const float* x, const Quad& quad) {
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

__global__ void __launch_bounds__(kUpdateThreads)
    squares_kernel(const Piece* pieces, const float* x, double* sums) {
  double sum = 0;
  each_quad(pieces[blockIdx.x], [&](const Quad& quad) {
    const Pack<float, kQuad> values = load_quad(x, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) sum += double{values.values[i]} * values.values[i];
  });
  sum = row_reduce(sum, Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kMaxThreads)
    sum_kernel(const double* sums, int64_t counted, int64_t count, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    sum += i < counted ? sums[i] : 0 * sums[i];
  }
  sum = row_reduce(sum, Plus());
  if (threadIdx.x == 0) *total = sum;
}

// Values that are the same for all elements in a step.
template <class Rule>
struct StepNumbers {
  bool skipped;
  float gradient_factor;  // inverse loss scale times label correction times clipping factor
  float learning_rate;
  float average_weight;
  typename Rule::Step step;

  __device__ RangeNumbers<float> of(const UpdateRange& range, float trust_ratio) const {
    return {learning_rate * range.learning_rate_scale, range.weight_decay, trust_ratio};
  }
};

template <class Rule>
__global__ void numbers_kernel(Rule rule, float max_norm, MovingAverage average, double* squares,
                               bool notes_overflow, const LossScale* loss_scale,
                               const float* metrics, const StepState* state,
                               StepNumbers<Rule>* numbers) {
  const double correction =
      metrics ? label_correction(*state, static_cast<double>(metrics[kMetricWeight])) : 1;
  const GradientScaling scaling = gradient_scaling<Rule>(max_norm, squares, loss_scale, correction);
  if (scaling.overflows && notes_overflow) *squares = -*squares;
  numbers->skipped = scaling.is_skipped;
  numbers->gradient_factor = scaling.factor;
  numbers->learning_rate = state->learning_rate;
  const auto number = static_cast<double>(state->step + 1 - (loss_scale ? loss_scale->skipped : 0));
  numbers->average_weight = static_cast<float>(average.weight(number));
  numbers->step = rule.at_step(number);
}

// Computes the numbers of a step of Update or TensorSquares. If an Update is skipped, notes in
// kSquares whether the reason is an overflow.
template <class Op, class Rule>
void launch_numbers(const char* name, const Rule& rule, float max_norm,
                    const MovingAverage& average, Stream& stream, Args args,
                    StepNumbers<Rule>* numbers) {
  trireme::cuda::launch(name, numbers_kernel<Rule>, {.blocks = dim3(1), .threads = dim3(1)}, stream,
                        rule, max_norm, average, pointer<double>(args, Op::kSquares),
                        std::is_same_v<Op, Update>, pointer<LossScale>(args, Op::kLossScale),
                        pointer<float>(args, Op::kMetrics), pointer<StepState>(args, Op::kState),
                        numbers);
}

struct Squares {
  double parameters, direction;
};

template <class Rule, int... I>
__global__ void __launch_bounds__(kUpdateThreads)
    norms_kernel(const Piece* pieces, Rule rule, const StepNumbers<Rule>* numbers,
                 const float* parameters, const float* gradients, Squares* squares,
                 std::array<const float*, kMaxSlots> slots, std::integer_sequence<int, I...>) {
  const StepNumbers<Rule> step = *numbers;
  const Piece piece = pieces[blockIdx.x];
  if (step.skipped || !piece.use_trust_ratio) return;
  const auto n = rule.numbers(step.step, step.of(piece, 1));
  Squares sum{0, 0};
  each_quad(piece, [&](const Quad& quad) {
    const Pack<float, kQuad> p = load_quad(parameters, quad);
    Pack<float, kQuad> s[kMaxSlots] = {load_quad(slots[I] + piece.slot_shift, quad)...};
    const Pack<float, kQuad> g = load_quad(gradients + piece.gradient_shift, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {  // elements outside the piece are 0
      const float d =
          Rule::direction(n, g.values[i] * step.gradient_factor, p.values[i], s[I].values[i]...);
      sum.parameters += double{p.values[i]} * p.values[i];
      sum.direction += double{d} * d;
    }
  });
  sum.parameters = row_reduce(sum.parameters, Plus());
  sum.direction = row_reduce(sum.direction, Plus());
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// One block per range, which has the pieces [ends[range - 1], ends[range]).
template <class Rule>
__global__ void __launch_bounds__(kUpdateThreads)
    sums_kernel(const UpdateRange* ranges, const int64_t* ends, const StepNumbers<Rule>* numbers,
                const Squares* squares, Squares* sums) {
  Squares sum{0, 0};
  if (!numbers->skipped && ranges[blockIdx.x].use_trust_ratio) {
    const int64_t first = blockIdx.x == 0 ? 0 : ends[blockIdx.x - 1];
    for (int64_t i = first + threadIdx.x; i < ends[blockIdx.x]; i += kUpdateThreads) {
      sum.parameters += squares[i].parameters;
      sum.direction += squares[i].direction;
    }
  }
  sum.parameters = row_reduce(sum.parameters, Plus());
  sum.direction = row_reduce(sum.direction, Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class Rule>
__global__ void __launch_bounds__(kUpdateThreads)
    ratios_kernel(const UpdateRange* ranges, int64_t count, Rule rule, const StepState* state,
                  const Squares* sums, float* ratios) {
  const int64_t i = int64_t{blockIdx.x} * kUpdateThreads + threadIdx.x;
  if (i >= count) return;
  const double rate = state->learning_rate * ranges[i].learning_rate_scale;
  ratios[i] = static_cast<float>(
      trust_ratio(rule, {rate, ranges[i].weight_decay, 1}, sums[i].parameters, sums[i].direction));
}

template <class Rule, class Low, int... I>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(const Piece* pieces, Rule rule, const StepNumbers<Rule>* numbers,
                  float* parameters, const float* gradients, const float* ratios, float* average,
                  Low* low, std::array<float*, kMaxSlots> slots, std::integer_sequence<int, I...>) {
  const StepNumbers<Rule> step = *numbers;
  if (step.skipped) return;
  const Piece piece = pieces[blockIdx.x];
  const auto n =
      rule.numbers(step.step, step.of(piece, kLayerWise<Rule> ? ratios[piece.range] : 1));
  each_quad(piece, [&](const Quad& quad) {
    Pack<float, kQuad> p = load_quad(parameters, quad);
    Pack<float, kQuad> s[kMaxSlots] = {load_quad(slots[I] + piece.slot_shift, quad)...};
    const Pack<float, kQuad> g = load_quad(gradients + piece.gradient_shift, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      Rule::apply(n, g.values[i] * step.gradient_factor, p.values[i], s[I].values[i]...);
    }
    (store(slots[I] + piece.slot_shift, quad, s[I]), ...);
    store(parameters, quad, p);
    if (low) store(low, quad, p);
    if (!average) return;
    Pack<float, kQuad> a = load_quad(average, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      a.values[i] += step.average_weight * (p.values[i] - a.values[i]);
    }
    store(average, quad, a);
  });
}

// Calls f(T()) with the dtype of the low-precision copy, or any dtype if there is none.
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
        [rule, slots, max_norm = op.max_norm, average = op.average, pieces = std::move(pieces)](
            Stream& stream, Args args, void* scratch) {
          auto* numbers = static_cast<StepNumbers<Rule>*>(scratch);
          launch_numbers<Op>("update", rule, max_norm, average, stream, args, numbers);
          pieces.launch_each(
              "update", update_kernel<Rule, Low, I...>, stream, rule, numbers,
              pointer<float>(args, Op::kParameters), pointer<float>(args, Op::kGradients),
              pointer<float>(args, Op::kTrustRatios), pointer<float>(args, Op::kAverage),
              pointer<Low>(args, Op::kLowPrecision),
              std::array<float*, kMaxSlots>{pointer<float>(args, Op::kSlots + I)...}, slots);
        },
        sizeof(StepNumbers<Rule>));
  });
}

// Returns the end of each range's pieces in the list of all pieces.
std::vector<int64_t> piece_ends(const std::vector<UpdateRange>& ranges) {
  std::vector<int64_t> ends(ranges.size());
  for (const Piece& piece : cut(ranges)) ++ends[static_cast<size_t>(piece.range)];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  return ends;
}

template <class Rule, int... I>
Plan plan_squares(const Rule& rule, const TensorSquares& op, Device& device, Specs given,
                  std::integer_sequence<int, I...> slots) {
  using Op = TensorSquares;
  static_assert(sizeof(Squares) % alignof(StepNumbers<Rule>) == 0);
  Pieces pieces(op.ranges, device);
  const size_t scratch_bytes = pieces.count() * sizeof(Squares) + sizeof(StepNumbers<Rule>);
  return function_op(
      in_row_major(given),
      [rule, slots, max_norm = op.max_norm, pieces = std::move(pieces),
       ranges = upload(device, op.ranges), ends = upload(device, piece_ends(op.ranges)),
       count = op.ranges.size()](Stream& stream, Args args, void* scratch) {
        auto* squares = static_cast<Squares*>(scratch);
        auto* numbers = reinterpret_cast<StepNumbers<Rule>*>(squares + pieces.count());
        launch_numbers<Op>("tensor_squares", rule, max_norm, MovingAverage{}, stream, args,
                           numbers);
        pieces.launch_each(
            "tensor_squares", norms_kernel<Rule, I...>, stream, rule, numbers,
            pointer<const float>(args, Op::kParameters), pointer<const float>(args, Op::kGradients),
            squares,
            std::array<const float*, kMaxSlots>{pointer<const float>(args, Op::kSlots + I)...},
            slots);
        trireme::cuda::launch(
            "tensor_squares", sums_kernel<Rule>,
            {.blocks = dim3(static_cast<unsigned>(count)), .threads = dim3(kUpdateThreads)}, stream,
            ranges.template as<UpdateRange>(), ends.template as<int64_t>(), numbers, squares,
            pointer<Squares>(args, Op::kSums));
      },
      scratch_bytes);
}

}  // namespace

Plan plan(const SumOfSquares& op, const ContextPtr& context, Specs given) {
  using Op = SumOfSquares;
  std::vector<UpdateRange> all = op.ranges;
  all.insert(all.end(), op.checked_ranges.begin(), op.checked_ranges.end());
  Pieces pieces(all, context->device);
  const auto counted = static_cast<int64_t>(cut(op.ranges).size());
  const size_t scratch_bytes = pieces.count() * sizeof(double);
  return function_op(
      in_row_major(given),
      [pieces = std::move(pieces), counted](Stream& stream, Args args, void* scratch) {
        auto* sums = static_cast<double*>(scratch);
        pieces.launch_each("sum_of_squares", squares_kernel, stream, pointer<float>(args, Op::kX),
                           sums);
        const auto count = static_cast<int64_t>(pieces.count());
        trireme::cuda::launch("sum_of_squares", sum_kernel,
                              {.blocks = dim3(1), .threads = block_for(count, kMaxThreads)}, stream,
                              sums, counted, count, pointer<double>(args, Op::kSum));
      },
      scratch_bytes);
}

Plan plan(const TensorSquares& op, const ContextPtr& context, Specs given) {
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          return plan_squares(rule, op, context->device, given, SlotNumbers<Rule>());
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
}

Plan plan(const TrustRatios& op, const ContextPtr& context, Specs given) {
  using Op = TrustRatios;
  return std::visit(
      [&]<class Rule>(const Rule& rule) -> Plan {
        if constexpr (kLayerWise<Rule>) {
          const auto count = std::ssize(op.ranges);
          const auto blocks = static_cast<unsigned>((count + kUpdateThreads - 1) / kUpdateThreads);
          return function_op(in_row_major(given), [rule, count, blocks,
                                                   ranges = upload(context->device, op.ranges)](
                                                      Stream& stream, Args args, void*) {
            trireme::cuda::launch("trust_ratios", ratios_kernel<Rule>,
                                  {.blocks = dim3(blocks), .threads = dim3(kUpdateThreads)}, stream,
                                  ranges.template as<UpdateRange>(), int64_t{count}, rule,
                                  pointer<StepState>(args, Op::kState),
                                  pointer<Squares>(args, Op::kSums),
                                  pointer<float>(args, Op::kRatios));
          });
        } else {
          return nullptr;  // check() has rejected it
        }
      },
      op.rule);
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
