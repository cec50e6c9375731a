// Recurrent layers. The inputs of all steps are multiplied at once. Each step is a matrix product of
// cuBLASLt and a kernel, in which a thread has an element of the state of a sequence.
#include <algorithm>
#include <array>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cublaslt.h"
#include "ops/cuda/element.h"
#include "ops/cuda/plans.h"
#include "ops/function_op.h"
#include "ops/recurrent.h"
#include "ops/recurrent_products.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kStepThreads = 256;

// RecurrentForward::kWorkspace: for each row the values of LSTM's gates, or of GRU's gates and
// r_n, [4 * H]; then, for LSTM, the cell after the step, f32 [H].
constexpr int kSavedGates = 4;

struct StepSizes {
  int64_t samples, length, hidden;
  bool lstm, reverse;

  __host__ __device__ int64_t gates() const { return (lstm ? 4 : 3) * hidden; }
  __host__ __device__ int64_t states() const { return (lstm ? 2 : 1) * hidden; }
  __host__ __device__ int64_t rows() const { return samples * length; }
  // The row that a step of a sequence reads and writes.
  __device__ int64_t row(int64_t sample, int64_t step) const {
    return sample * length + (reverse ? length - 1 - step : step);
  }
  // The sequence and the element of its state that the thread has.
  __device__ int64_t sample() const { return blockIdx.x; }
  __device__ int64_t element() const { return int64_t{blockIdx.y} * kStepThreads + threadIdx.x; }

  trireme::cuda::Grid grid() const {
    return {.blocks = dim3(static_cast<unsigned>(samples),
                           static_cast<unsigned>((hidden + kStepThreads - 1) / kStepThreads)),
            .threads = dim3(kStepThreads)};
  }
  size_t cells_offset(size_t element_bytes) const {
    return device_aligned(static_cast<size_t>(rows() * kSavedGates * hidden) * element_bytes);
  }
};

template <class Op>
StepSizes sizes_of(const Op& op, const Shape& y) {
  bool reverse = false;
  if constexpr (requires { op.reverse; }) reverse = op.reverse;
  return {y[0], y[1], y[2], op.cell == RecurrentCell::kLstm, reverse};
}

// The states of CachedRecurrent.
struct CachedStates {
  const int32_t* starts;
  float* cache;  // null: there is none
  int64_t positions;

  // Returns the state before the first step of a sequence; null if it is 0.
  __device__ const float* before(const StepSizes& n, int64_t sample) const {
    const int64_t start = starts[sample];
    if (start == 0 || start >= positions) return nullptr;
    return cache + (sample * positions + start - 1) * n.states();
  }
};

// `state` is the cell c of LSTM, and h of GRU in full precision; both it and h are [B, H].
template <class T>
__global__ void __launch_bounds__(kStepThreads)
    begin_kernel(StepSizes n, const float* initial, CachedStates cached, T* h, float* state) {
  const int64_t sample = n.sample(), j = n.element();
  if (j >= n.hidden) return;
  const float* from = cached.cache ? cached.before(n, sample)
                      : initial    ? initial + sample * n.states()
                                   : nullptr;
  const int64_t at = sample * n.hidden + j;
  h[at] = from_float<T>(from ? from[j] : 0.0f);
  state[at] = from ? from[n.states() - n.hidden + j] : 0.0f;
}

template <class T>
__device__ void write_state(const StepSizes& n, T h, float state, float* to, int64_t j) {
  if (n.lstm) to[j] = to_float(h);
  to[n.states() - n.hidden + j] = state;
}

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    final_kernel(StepSizes n, const T* h, const float* state, float* to) {
  const int64_t sample = n.sample(), j = n.element(), at = sample * n.hidden + j;
  if (j < n.hidden) write_state(n, h[at], state[at], to + sample * n.states(), j);
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// What a step writes for the backward pass; null in inference.
template <class T>
struct SavedSteps {
  T* gates;
  float* cells;

  __device__ void save(const StepSizes& n, int64_t row, int64_t j,
                       const Pack<float, kSavedGates>& values) const {
    if (!gates) return;
    T* const to = gates + row * kSavedGates * n.hidden + j;
    for (int k = 0; k < kSavedGates; ++k) to[k * n.hidden] = from_float<T>(values.values[k]);
  }
};

// a [B * T, G * H] and r [B, G * H] without its bias. Returns h after the step.
template <class T>
__device__ float lstm_step(const StepSizes& n, int64_t row, int64_t j, const float* a,
                           const float* r, const T* bias, float* state,
                           const SavedSteps<T>& saved) {
  const auto gate = [&](int64_t which) {
    const int64_t at = which * n.hidden + j;
    return a[at] + r[at] + to_float(bias[at]);
  };
  const float i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanhf(gate(2)), o = sigmoid(gate(3));
  const float c = f * *state + i * g;
  *state = c;
  saved.save(n, row, j, {{i, f, g, o}});
  if (saved.gates) saved.cells[row * n.hidden + j] = c;
  return o * tanhf(c);
}
template <class T>
__device__ float gru_step(const StepSizes& n, int64_t row, int64_t j, const float* a,
                          const float* p, const T* bias, float* state, const SavedSteps<T>& saved) {
  const auto product = [&](int64_t which) {
    return p[which * n.hidden + j] + to_float(bias[which * n.hidden + j]);
  };
  const float r = sigmoid(a[j] + product(0)), z = sigmoid(a[n.hidden + j] + product(1));
  const float r_n = product(2), candidate = tanhf(a[2 * n.hidden + j] + r * r_n);
  *state = (1 - z) * candidate + z * *state;
  saved.save(n, row, j, {{r, z, candidate, r_n}});
  return *state;
}

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    step_kernel(StepSizes n, int64_t step, const float* a, const float* r, const T* bias,
                CachedStates cached, T* h, float* state, T* y, SavedSteps<T> saved) {
  const int64_t sample = n.sample(), j = n.element();
  if (j >= n.hidden) return;
  const int64_t row = n.row(sample, step), at = sample * n.hidden + j;
  a += row * n.gates();
  r += sample * n.gates();
  const float value = n.lstm ? lstm_step(n, row, j, a, r, bias, state + at, saved)
                             : gru_step(n, row, j, a, r, bias, state + at, saved);
  h[at] = y[row * n.hidden + j] = from_float<T>(value);
  if (!cached.cache) return;
  const int64_t position = cached.starts[sample] + step;
  if (position < cached.positions) {
    float* to = cached.cache + (sample * cached.positions + position) * n.states();
    write_state(n, h[at], state[at], to, j);
  } else {
    y[row * n.hidden + j] = from_float<T>(0);
  }
}

// The gradients of a step. `next` [B, G * H] is dr again, for the product that gives dh before the
// step. dh and dcell [B, H] come from the step after; they are not read in the last step.
template <class T>
struct StepGradients {
  const T* dy;
  T *da, *dr, *before;  // of all rows, see RecurrentGradients::Steps
  T* next;
  float *dh, *dcell;
};

// For GRU, leaves in dh what does not flow through the product.
template <class T>
__global__ void __launch_bounds__(kStepThreads)
    step_gradient_kernel(StepSizes n, int64_t step, const float* initial, const T* y,
                         SavedSteps<T> saved, StepGradients<T> out) {
  const int64_t sample = n.sample(), j = n.element();
  if (j >= n.hidden) return;
  const int64_t row = n.row(sample, step), at = sample * n.hidden + j;
  const int64_t previous = step > 0 ? n.row(sample, step - 1) * n.hidden + j : 0;
  const float* const first = initial ? initial + sample * n.states() : nullptr;
  const T before = step > 0 ? y[previous] : from_float<T>(first ? first[j] : 0.0f);
  out.before[row * n.hidden + j] = before;
  const auto value = [&](int64_t which) {
    return to_float(saved.gates[(row * kSavedGates + which) * n.hidden + j]);
  };
  const auto store = [&](int64_t gate, float of_a, float of_r) {
    const int64_t column = gate * n.hidden + j;
    out.da[row * n.gates() + column] = from_float<T>(of_a);
    out.dr[row * n.gates() + column] = from_float<T>(of_r);
    out.next[sample * n.gates() + column] = from_float<T>(of_r);
  };
  const bool last = step == n.length - 1;
  const float d = to_float(out.dy[row * n.hidden + j]) + (last ? 0.0f : out.dh[at]);
  if (n.lstm) {
    const float i = value(0), f = value(1), g = value(2), o = value(3);
    const float tanh_c = tanhf(saved.cells[row * n.hidden + j]);
    const float cell_before = step > 0 ? saved.cells[previous] : first ? first[n.hidden + j] : 0.0f;
    const float dc = (last ? 0.0f : out.dcell[at]) + d * o * (1 - tanh_c * tanh_c);
    const float di = dc * g * i * (1 - i), df = dc * cell_before * f * (1 - f);
    const float dg = dc * i * (1 - g * g), d_o = d * tanh_c * o * (1 - o);
    out.dcell[at] = dc * f;
    store(0, di, di);
    store(1, df, df);
    store(2, dg, dg);
    store(3, d_o, d_o);
  } else {
    const float r = value(0), z = value(1), candidate = value(2), r_n = value(3);
    const float dn = d * (1 - z) * (1 - candidate * candidate);
    const float dr = dn * r_n * r * (1 - r), dz = d * (to_float(before) - candidate) * z * (1 - z);
    out.dh[at] = d * z;
    store(0, dr, dr);
    store(1, dz, dz);
    store(2, dn, dn * r);
  }
}

// Divides scratch memory into aligned parts.
class ScratchParts {
 public:
  size_t add(size_t bytes) {
    const size_t offset = total_;
    total_ += device_aligned(bytes);
    return offset;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};
template <class T>
T* part(void* scratch, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + offset);
}

template <class T>
SavedSteps<T> saved_steps(const StepSizes& n, void* workspace) {
  if (!workspace) return {nullptr, nullptr};
  return {static_cast<T*>(workspace), part<float>(workspace, n.cells_offset(sizeof(T)))};
}

template <class Op, class T>
Plan plan_forward_steps(const Op& op, const ContextPtr& context, std::vector<TensorSpec> specs,
                        int64_t positions) {
  const StepSizes n = sizes_of(op, specs[Op::kY].shape);
  auto input = plan_input_product(
      op, specs, [&](const auto& other, Specs of_other) { return plan(other, context, of_other); });
  const AlgorithmPtr product = find_product(*context, {.rows = n.samples,
                                                       .columns = n.gates(),
                                                       .inner = n.hidden,
                                                       .b_transposed = true,
                                                       .in = specs[Op::kX].dtype,
                                                       .out = DType::kF32,
                                                       .tf32 = context->options.tf32});
  ScratchParts parts;
  const auto elements = static_cast<size_t>(n.samples * n.hidden);
  const size_t a_at = parts.add(static_cast<size_t>(n.rows() * n.gates()) * sizeof(float));
  const size_t r_at = parts.add(static_cast<size_t>(n.samples * n.gates()) * sizeof(float));
  const size_t h_at = parts.add(elements * sizeof(T));
  const size_t state_at = parts.add(elements * sizeof(float));
  const size_t rest_at = parts.add(std::max(input->scratch_bytes(), product->workspace_bytes()));
  const auto work = [=, input = std::move(input)](Stream& stream, Args args, void* scratch) {
    auto* const a = part<float>(scratch, a_at);
    auto* const r = part<float>(scratch, r_at);
    auto* const h = part<T>(scratch, h_at);
    auto* const state = part<float>(scratch, state_at);
    void* const rest = part<void>(scratch, rest_at);
    CachedStates cached{};
    const float* initial = nullptr;
    float* last = nullptr;
    void* workspace = nullptr;
    if constexpr (requires { Op::kCache; }) {
      cached = {pointer<int32_t>(args, Op::kStarts), pointer<float>(args, Op::kCache), positions};
    } else {
      initial = pointer<float>(args, Op::kInitial);
      last = pointer<float>(args, Op::kFinal);
      workspace = args[Op::kWorkspace];
    }
    input->encode(stream,
                  std::array<void*, 4>{args[Op::kX], args[Op::kWeightIh], args[Op::kBiasIh], a},
                  rest);
    trireme::cuda::launch("recurrent_forward", begin_kernel<T>, n.grid(), stream, n, initial,
                          cached, h, state);
    for (int64_t step = 0; step < n.length; ++step) {
      product->run(stream, std::array<void*, 4>{h, args[Op::kWeightHh], r, kNoTensor}, rest);
      trireme::cuda::launch("recurrent_forward", step_kernel<T>, n.grid(), stream, n, step, a, r,
                            pointer<T>(args, Op::kBiasHh), cached, h, state,
                            pointer<T>(args, Op::kY), saved_steps<T>(n, workspace));
    }
    if (!last) return;
    trireme::cuda::launch("recurrent_forward", final_kernel<T>, n.grid(), stream, n, h, state,
                          last);
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

template <class T>
Plan plan_backward_steps(const RecurrentBackward& op, const ContextPtr& context,
                         std::vector<TensorSpec> specs) {
  using Op = RecurrentBackward;
  const StepSizes n = sizes_of(op, specs[Op::kY].shape);
  RecurrentGradients gradients(
      op, specs, [&](const auto& other, Specs of_other) { return plan(other, context, of_other); });
  const AlgorithmPtr product = find_product(*context, {.rows = n.samples,
                                                       .columns = n.hidden,
                                                       .inner = n.gates(),
                                                       .in = specs[Op::kX].dtype,
                                                       .out = DType::kF32,
                                                       .tf32 = context->options.tf32,
                                                       .accumulate = !n.lstm});
  ScratchParts parts;
  const auto elements = static_cast<size_t>(n.samples * n.hidden);
  const auto rows = static_cast<size_t>(n.rows());
  const size_t gate_bytes = static_cast<size_t>(n.gates()) * sizeof(T);
  const size_t da_at = parts.add(rows * gate_bytes);
  const size_t dr_at = n.lstm ? da_at : parts.add(rows * gate_bytes);
  const size_t before_at = parts.add(rows * static_cast<size_t>(n.hidden) * sizeof(T));
  const size_t next_at = parts.add(static_cast<size_t>(n.samples) * gate_bytes);
  const size_t dh_at = parts.add(elements * sizeof(float));
  const size_t dcell_at = parts.add(elements * sizeof(float));
  const size_t rest_at = parts.add(std::max(gradients.scratch_bytes(), product->workspace_bytes()));
  const auto work = [=, gradients = std::move(gradients)](Stream& stream, Args args,
                                                          void* scratch) {
    const StepGradients<T> out{.dy = pointer<T>(args, Op::kDy),
                               .da = part<T>(scratch, da_at),
                               .dr = part<T>(scratch, dr_at),
                               .before = part<T>(scratch, before_at),
                               .next = part<T>(scratch, next_at),
                               .dh = part<float>(scratch, dh_at),
                               .dcell = part<float>(scratch, dcell_at)};
    void* const rest = part<void>(scratch, rest_at);
    const SavedSteps<T> saved = saved_steps<T>(n, args[Op::kWorkspace]);
    for (int64_t step = n.length - 1; step >= 0; --step) {
      trireme::cuda::launch("recurrent_backward", step_gradient_kernel<T>, n.grid(), stream, n,
                            step, pointer<float>(args, Op::kInitial), pointer<T>(args, Op::kY),
                            saved, out);
      if (step == 0) break;
      product->run(stream, std::array<void*, 4>{out.next, args[Op::kWeightHh], out.dh, kNoTensor},
                   rest);
    }
    gradients.encode(stream, args, {out.da, out.dr, out.before}, rest);
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

}  // namespace

Plan plan(const RecurrentForward& op, const ContextPtr& context, Specs given) {
  using Op = RecurrentForward;
  std::vector<TensorSpec> specs = in_row_major(given);
  return with_element(specs[Op::kX].dtype, [&]<class T>(T) -> Plan {
    if (!is_absent(given[Op::kWorkspace])) {
      const StepSizes n = sizes_of(op, specs[Op::kY].shape);
      const size_t cells = n.lstm ? static_cast<size_t>(n.rows() * n.hidden) * sizeof(float) : 0;
      specs[Op::kWorkspace] = {DType::kU8,
                               {static_cast<int64_t>(n.cells_offset(sizeof(T)) + cells)},
                               Layout::row_major()};
    }
    return plan_forward_steps<Op, T>(op, context, std::move(specs), /*positions=*/0);
  });
}

Plan plan(const RecurrentBackward& op, const ContextPtr& context, Specs given) {
  return with_element(given[RecurrentBackward::kX].dtype, [&]<class T>(T) {
    return plan_backward_steps<T>(op, context, in_row_major(given));
  });
}

Plan plan(const CachedRecurrent& op, const ContextPtr& context, Specs given) {
  using Op = CachedRecurrent;
  return with_element(given[Op::kX].dtype, [&]<class T>(T) {
    return plan_forward_steps<Op, T>(op, context, in_row_major(given), given[Op::kCache].shape[1]);
  });
}

}  // namespace trireme::ops::cuda
