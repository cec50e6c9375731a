#include "core/cuda/launch.h"
#include "ops/cuda/element.h"
#include "ops/cuda/recurrent_steps.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kStepThreads = 256;

// The sequence and the element of its state that the thread has.
__device__ inline int64_t sequence() { return blockIdx.x; }
__device__ inline int64_t element() { return int64_t{blockIdx.y} * kStepThreads + threadIdx.x; }

trireme::cuda::Grid grid_of(const StepSizes& n) {
  return {.blocks = dim3(static_cast<unsigned>(n.samples),
                         static_cast<unsigned>((n.hidden + kStepThreads - 1) / kStepThreads)),
          .threads = dim3(kStepThreads)};
}

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    begin_kernel(StepSizes n, const float* initial, CachedStates cached, T* h, float* state) {
  const int64_t sample = sequence(), j = element();
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
  const int64_t sample = sequence(), j = element(), at = sample * n.hidden + j;
  if (j < n.hidden) write_state(n, h[at], state[at], to + sample * n.states(), j);
}

__device__ inline float gate_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

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
  const float i = gate_sigmoid(gate(0)), f = gate_sigmoid(gate(1)), g = tanhf(gate(2)),
              o = gate_sigmoid(gate(3));
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
  const float r = gate_sigmoid(a[j] + product(0)), z = gate_sigmoid(a[n.hidden + j] + product(1));
  const float r_n = product(2), candidate = tanhf(a[2 * n.hidden + j] + r * r_n);
  *state = (1 - z) * candidate + z * *state;
  saved.save(n, row, j, {{r, z, candidate, r_n}});
  return *state;
}

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    step_kernel(StepSizes n, int64_t step, DocumentEnds ends, const float* a, const float* r,
                const T* bias, CachedStates cached, T* h, float* state, T* y, SavedSteps<T> saved) {
  const int64_t sample = sequence(), j = element();
  if (j >= n.hidden) return;
  const int64_t row = n.row(sample, step), at = sample * n.hidden + j;
  a += row * n.gates();
  r += sample * n.gates();
  const float value = n.lstm ? lstm_step(n, row, j, a, r, bias, state + at, saved)
                             : gru_step(n, row, j, a, r, bias, state + at, saved);
  y[row * n.hidden + j] = from_float<T>(value);
  const bool ended = ends.at(n, row);
  h[at] = from_float<T>(ended ? 0.0f : value);
  if (ended) state[at] = 0;
  if (!cached.cache) return;
  const int64_t position = cached.starts[sample] + step;
  if (position < cached.positions) {
    float* to = cached.cache + (sample * cached.positions + position) * n.states();
    write_state(n, h[at], state[at], to, j);
  } else {
    y[row * n.hidden + j] = from_float<T>(0);
  }
}

template <class T>
struct StepGradients {
  const T* dy;
  T *da, *dr, *before, *next;
  float *dh, *dcell;
};

template <class T>
__global__ void __launch_bounds__(kStepThreads)
    step_gradient_kernel(StepSizes n, int64_t step, DocumentEnds ends, const float* initial,
                         const T* y, SavedSteps<T> saved, StepGradients<T> out) {
  const int64_t sample = sequence(), j = element();
  if (j >= n.hidden) return;
  const int64_t row = n.row(sample, step), at = sample * n.hidden + j;
  const int64_t previous_row = step > 0 ? n.row(sample, step - 1) : 0;
  const int64_t previous = previous_row * n.hidden + j;
  const float* const first = step == 0 && initial ? initial + sample * n.states() : nullptr;
  const bool continues = step > 0 && !ends.at(n, previous_row);
  const T before = continues ? y[previous] : from_float<T>(first ? first[j] : 0.0f);
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
  const bool last = step == n.length - 1 || ends.at(n, row);
  const float d = to_float(out.dy[row * n.hidden + j]) + (last ? 0.0f : out.dh[at]);
  if (n.lstm) {
    const float i = value(0), f = value(1), g = value(2), o = value(3);
    const float tanh_c = tanhf(saved.cells[row * n.hidden + j]);
    const float cell_before = continues ? saved.cells[previous]
                              : first   ? first[n.hidden + j]
                                        : 0.0f;
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

template <class T>
SavedSteps<T> saved_steps(const StepSizes& n, const void* workspace) {
  if (!workspace) return {nullptr, nullptr};
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(workspace));
  return {reinterpret_cast<T*>(memory), reinterpret_cast<float*>(memory + n.cells_offset())};
}

}  // namespace

void begin_steps(Stream& stream, const StepSizes& n, const float* initial,
                 const CachedStates& cached, const StepStates& states) {
  with_element(n.dtype, [&]<class T>(T) {
    trireme::cuda::launch("recurrent_forward", begin_kernel<T>, grid_of(n), stream, n, initial,
                          cached, static_cast<T*>(states.h), states.state);
  });
}

void write_final_states(Stream& stream, const StepSizes& n, const StepStates& states, float* to) {
  with_element(n.dtype, [&]<class T>(T) {
    trireme::cuda::launch("recurrent_forward", final_kernel<T>, grid_of(n), stream, n,
                          static_cast<const T*>(states.h), states.state, to);
  });
}

void forward_step(Stream& stream, const StepSizes& n, int64_t step, const ForwardStep& args,
                  const CachedStates& cached, const StepStates& states) {
  with_element(n.dtype, [&]<class T>(T) {
    trireme::cuda::launch("recurrent_forward", step_kernel<T>, grid_of(n), stream, n, step,
                          args.ends, args.a, args.r, static_cast<const T*>(args.bias), cached,
                          static_cast<T*>(states.h), states.state, static_cast<T*>(args.y),
                          saved_steps<T>(n, args.workspace));
  });
}

void backward_step(Stream& stream, const StepSizes& n, int64_t step, const BackwardStep& args) {
  with_element(n.dtype, [&]<class T>(T) {
    const StepGradients<T> out{static_cast<const T*>(args.dy),
                               static_cast<T*>(args.da),
                               static_cast<T*>(args.dr),
                               static_cast<T*>(args.before),
                               static_cast<T*>(args.next),
                               args.dh,
                               args.dcell};
    trireme::cuda::launch("recurrent_backward", step_gradient_kernel<T>, grid_of(n), stream, n,
                          step, args.ends, args.initial, static_cast<const T*>(args.y),
                          saved_steps<T>(n, args.workspace), out);
  });
}

}  // namespace trireme::ops::cuda
