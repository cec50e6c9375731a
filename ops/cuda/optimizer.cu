// Optimizer updates in one pass over the flat arrays, a block for each piece of a range.
#include <algorithm>
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

namespace trireme::cuda {
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
    const Grid grid{.blocks = dim3(static_cast<unsigned>(count_)), .threads = dim3(kThreads)};
    launch(name, kernel, grid, stream, table_.as<UpdateRange>(), arguments...);
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
struct StepNumbers {
  bool skipped;
  float gradient_factor;  // one over the loss scale, and what takes the norm down to max_norm
  float learning_rate;
  float inv_correction1, inv_sqrt_correction2;  // of Adam's moments
};

__global__ void numbers_kernel(float max_norm, double beta1, double beta2, const double* squares,
                               const LossScale* loss_scale, const StepState* state,
                               StepNumbers* numbers) {
  numbers->skipped = loss_scale && !isfinite(*squares);
  const double unscaled = loss_scale ? 1 / static_cast<double>(loss_scale->scale) : 1;
  const double norm = max_norm > 0 ? sqrt(*squares) * unscaled : 0;
  numbers->gradient_factor =
      static_cast<float>(norm > max_norm ? unscaled * max_norm / norm : unscaled);
  numbers->learning_rate = state->learning_rate;
  const auto t = static_cast<double>(state->step + 1 - (loss_scale ? loss_scale->skipped : 0));
  numbers->inv_correction1 = static_cast<float>(1 / (1 - pow(beta1, t)));
  numbers->inv_sqrt_correction2 = static_cast<float>(1 / sqrt(1 - pow(beta2, t)));
}

// Without momentum there is no velocity.
template <class Low>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const UpdateRange* pieces, const StepNumbers* numbers, float momentum, bool nesterov,
               float* parameters, const float* gradients, float* velocities, Low* low) {
  const StepNumbers n = *numbers;
  if (n.skipped) return;
  const UpdateRange piece = pieces[blockIdx.x];
  const float rate = n.learning_rate * piece.learning_rate_scale;
  each_quad(piece, [&](const Quad& quad) {
    Pack<float, kQuad> p = load(parameters, quad), v{};
    const Pack<float, kQuad> g = load(gradients, quad);
    if (velocities) v = load(velocities, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float gradient = g.values[i] * n.gradient_factor + piece.weight_decay * p.values[i];
      v.values[i] = momentum * v.values[i] + gradient;
      p.values[i] -= rate * (nesterov ? gradient + momentum * v.values[i] : v.values[i]);
    }
    if (velocities) store(velocities, quad, v);
    store(parameters, quad, p);
    if (low) store(low, quad, p);
  });
}

struct AdamNumbers {
  float beta1, beta2, epsilon;
  bool decoupled;
};

template <class Low>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(const UpdateRange* pieces, const StepNumbers* numbers, AdamNumbers adam,
                float* parameters, const float* gradients, float* moments1, float* moments2,
                Low* low) {
  const StepNumbers n = *numbers;
  if (n.skipped) return;
  const UpdateRange piece = pieces[blockIdx.x];
  const float rate = n.learning_rate * piece.learning_rate_scale;
  const float step_size = rate * n.inv_correction1;
  // Weight decay is added to the gradient or, decoupled, shrinks the parameter.
  const float added = adam.decoupled ? 0 : piece.weight_decay;
  const float kept = adam.decoupled ? 1 - rate * piece.weight_decay : 1;
  each_quad(piece, [&](const Quad& quad) {
    Pack<float, kQuad> p = load(parameters, quad), m1 = load(moments1, quad),
                       m2 = load(moments2, quad);
    const Pack<float, kQuad> g = load(gradients, quad);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float gradient = g.values[i] * n.gradient_factor + added * p.values[i];
      m1.values[i] = adam.beta1 * m1.values[i] + (1 - adam.beta1) * gradient;
      m2.values[i] = adam.beta2 * m2.values[i] + (1 - adam.beta2) * gradient * gradient;
      p.values[i] =
          p.values[i] * kept -
          step_size * m1.values[i] / (sqrtf(m2.values[i]) * n.inv_sqrt_correction2 + adam.epsilon);
    }
    store(moments1, quad, m1);
    store(moments2, quad, m2);
    store(parameters, quad, p);
    if (low) store(low, quad, p);
  });
}

template <class Op>
const StepNumbers* find_numbers(const Op& op, double beta1, double beta2, Stream& stream, Args args,
                                void* scratch) {
  auto* numbers = static_cast<StepNumbers*>(scratch);
  launch("update", numbers_kernel, {.blocks = dim3(1), .threads = dim3(1)}, stream, op.max_norm,
         beta1, beta2, pointer<double>(args, Op::kSquares),
         pointer<LossScale>(args, Op::kLossScale), pointer<StepState>(args, Op::kState), numbers);
  return numbers;
}

// Calls f(T()) with the dtype of the copy in low precision, or any where there is none.
template <class F>
Plan with_low_precision(const TensorSpec& low, F f) {
  return with_element(is_absent(low) ? DType::kF32 : low.dtype, f);
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
        launch("sum_of_squares", sum_kernel, {.blocks = dim3(1), .threads = dim3(kSumThreads)},
               stream, sums, counted, static_cast<int64_t>(pieces.count()),
               pointer<double>(args, Op::kSum));
      },
      scratch_bytes);
}

Plan plan(const SgdUpdate& op, const ContextPtr& context, Specs given) {
  using Op = SgdUpdate;
  return with_low_precision(given[Op::kLowPrecision], [&]<class Low>(Low) {
    return function_op(
        in_row_major(given),
        [op, pieces = Pieces(op.ranges, context->device)](Stream& stream, Args args,
                                                          void* scratch) {
          const StepNumbers* numbers = find_numbers(op, 0, 0, stream, args, scratch);
          pieces.launch_each(
              "sgd_update", sgd_kernel<Low>, stream, numbers, op.momentum, op.nesterov,
              pointer<float>(args, Op::kParameters), pointer<float>(args, Op::kGradients),
              pointer<float>(args, Op::kVelocity), pointer<Low>(args, Op::kLowPrecision));
        },
        sizeof(StepNumbers));
  });
}

Plan plan(const AdamUpdate& op, const ContextPtr& context, Specs given) {
  using Op = AdamUpdate;
  return with_low_precision(given[Op::kLowPrecision], [&]<class Low>(Low) {
    return function_op(
        in_row_major(given),
        [op, pieces = Pieces(op.ranges, context->device)](Stream& stream, Args args,
                                                          void* scratch) {
          const StepNumbers* numbers = find_numbers(op, op.beta1, op.beta2, stream, args, scratch);
          const AdamNumbers adam{op.beta1, op.beta2, op.epsilon, op.decoupled};
          pieces.launch_each("adam_update", adam_kernel<Low>, stream, numbers, adam,
                             pointer<float>(args, Op::kParameters),
                             pointer<float>(args, Op::kGradients),
                             pointer<float>(args, Op::kMoment1), pointer<float>(args, Op::kMoment2),
                             pointer<Low>(args, Op::kLowPrecision));
        },
        sizeof(StepNumbers));
  });
}

}  // namespace trireme::cuda
