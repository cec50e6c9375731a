// Recurrent layers. The inputs of all steps are multiplied at once. The steps are a matrix product
// with packed weights and a loop over the gates each, for blocks of sequences: blocks do not depend
// on each other, so that a thread has all steps of a block.
#include "ops/recurrent.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/attention_rows.h"
#include "ops/cpu/dnnl.h"
#include "ops/cpu/in_f32.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/product.h"
#include "ops/cpu/simd.h"
#include "ops/cpu/tasks.h"
#include "ops/function_op.h"
#include "ops/recurrent_products.h"

namespace trireme::ops::cpu {
namespace {

struct Lstm {
  static constexpr RecurrentCell kCell = RecurrentCell::kLstm;
};
struct Gru {
  static constexpr RecurrentCell kCell = RecurrentCell::kGru;
};

// Calls f(T(), Lstm()) or f(T(), Gru()).
template <class F>
auto with_cell(RecurrentCell cell, DType dtype, F f) {
  return with_element(dtype, [&]<class T>(T) {
    return cell == RecurrentCell::kLstm ? f(T(), Lstm()) : f(T(), Gru());
  });
}

struct RecurrentSizes {
  int64_t samples, length, hidden, gates;  // gates: G * H
  int64_t state;                           // S * H
  bool reverse = false;
  int32_t document_end;

  template <class Op>
  RecurrentSizes(const Op& op, const Shape& y)
      : samples(y[0]),
        length(y[1]),
        hidden(y[2]),
        gates(gates_of(op.cell) * y[2]),
        state(states_of(op.cell) * y[2]),
        document_end(op.document_end) {
    if constexpr (requires { op.reverse; }) reverse = op.reverse;
  }

  int64_t rows() const { return samples * length; }
  // Returns the row that a step of a sequence reads and writes.
  int64_t row(int64_t sample, int64_t step) const {
    return sample * length + (reverse ? length - 1 - step : step);
  }
  // Returns whether the state after this row is 0.
  template <class Op>
  bool ends_document(Args args, int64_t row) const {
    const auto* const tokens = pointer<const int32_t>(args, Op::kTokens);
    return tokens && tokens[row] == document_end;
  }
};

// RecurrentForward::kWorkspace: for each row the values of LSTM's gates, or of GRU's gates and
// r_n, [4 * H]; then, for LSTM, the cell after the step, f32 [H].
constexpr int64_t kSavedGates = 4;
template <class T>
size_t cells_offset(const RecurrentSizes& n) {
  return device_aligned(static_cast<size_t>(n.rows() * kSavedGates * n.hidden) * sizeof(T));
}
template <class T, class Cell>
size_t workspace_bytes(const RecurrentSizes& n) {
  const bool cells = Cell::kCell == RecurrentCell::kLstm;
  return cells_offset<T>(n) +
         (cells ? static_cast<size_t>(n.rows() * n.hidden) * sizeof(float) : 0);
}

// A step of a sequence. `state` is the cell c of LSTM, and h of GRU in full precision. Writes h to
// h and y. If kSaves, also writes `saved` and, for LSTM, `cell`; `saved` may be a.
template <bool kSaves, class T>
TRIREME_VECTORIZED void forward_row(Lstm, int64_t n, const float* a, const float* r, const T* bias,
                                    float* state, T* h, T* y, T* saved, float* cell) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float i = fast_sigmoid(a[j] + r[j] + to_float(bias[j]));
    const float f = fast_sigmoid(a[n + j] + r[n + j] + to_float(bias[n + j]));
    const float g = fast_tanh(a[2 * n + j] + r[2 * n + j] + to_float(bias[2 * n + j]));
    const float o = fast_sigmoid(a[3 * n + j] + r[3 * n + j] + to_float(bias[3 * n + j]));
    const float c = f * state[j] + i * g;
    state[j] = c;
    const float value = o * fast_tanh(c);
    h[j] = from_float<T>(value);
    y[j] = from_float<T>(value);
    if constexpr (kSaves) {
      saved[j] = from_float<T>(i);
      saved[n + j] = from_float<T>(f);
      saved[2 * n + j] = from_float<T>(g);
      saved[3 * n + j] = from_float<T>(o);
      cell[j] = c;
    }
  }
}

template <bool kSaves, class T>
TRIREME_VECTORIZED void forward_row(Gru, int64_t n, const float* a, const float* p, const T* bias,
                                    float* state, T* h, T* y, T* saved, float*) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float r = fast_sigmoid(a[j] + p[j] + to_float(bias[j]));
    const float z = fast_sigmoid(a[n + j] + p[n + j] + to_float(bias[n + j]));
    const float r_n = p[2 * n + j] + to_float(bias[2 * n + j]);
    const float candidate = fast_tanh(a[2 * n + j] + r * r_n);
    const float value = (1 - z) * candidate + z * state[j];
    state[j] = value;
    h[j] = from_float<T>(value);
    y[j] = from_float<T>(value);
    if constexpr (kSaves) {
      saved[j] = from_float<T>(r);
      saved[n + j] = from_float<T>(z);
      saved[2 * n + j] = from_float<T>(candidate);
      saved[3 * n + j] = from_float<T>(r_n);
    }
  }
}

// What a step of a sequence reads in the backward pass. For LSTM, `cell` and `cell_before` are the
// cells after and before the step.
template <class T>
struct SavedStep {
  const T *gates, *h_before;
  const float *cell, *cell_before;
};

// The gradients of a step: da and, where it differs, dr, [G * H]. dh, the gradient from the step
// after, is that of h without dy; dcell is that of the cell, before and after this call.
template <class T>
TRIREME_VECTORIZED void backward_row(Lstm, int64_t n, const SavedStep<T>& saved, const T* dy,
                                     float* dh, float* dcell, T* da, T*) {
  const T* gates = saved.gates;
  const float *cell = saved.cell, *cell_before = saved.cell_before;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float i = to_float(gates[j]), f = to_float(gates[n + j]);
    const float g = to_float(gates[2 * n + j]), o = to_float(gates[3 * n + j]);
    const float d = to_float(dy[j]) + dh[j], tanh_c = fast_tanh(cell[j]);
    const float dc = dcell[j] + d * o * (1 - tanh_c * tanh_c);
    dcell[j] = dc * f;
    da[j] = from_float<T>(dc * g * i * (1 - i));
    da[n + j] = from_float<T>(dc * cell_before[j] * f * (1 - f));
    da[2 * n + j] = from_float<T>(dc * i * (1 - g * g));
    da[3 * n + j] = from_float<T>(d * tanh_c * o * (1 - o));
  }
}

// Leaves the part of dh in dh that does not flow through the product.
template <class T>
TRIREME_VECTORIZED void backward_row(Gru, int64_t n, const SavedStep<T>& saved, const T* dy,
                                     float* dh, float*, T* da, T* dr) {
  const T *gates = saved.gates, *h_before = saved.h_before;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float r = to_float(gates[j]), z = to_float(gates[n + j]);
    const float candidate = to_float(gates[2 * n + j]), r_n = to_float(gates[3 * n + j]);
    const float d = to_float(dy[j]) + dh[j];
    const float dn = d * (1 - z) * (1 - candidate * candidate);
    dh[j] = d * z;
    da[j] = from_float<T>(dn * r_n * r * (1 - r));
    da[n + j] = from_float<T>(d * (to_float(h_before[j]) - candidate) * z * (1 - z));
    da[2 * n + j] = from_float<T>(dn);
    dr[2 * n + j] = from_float<T>(dn * r);
  }
}

// Convert between a state [S, H] and the h and `state` of forward_row().
template <class T>
void read_state(Lstm, int64_t n, const float* from, T* h, float* state) {
  cast_row(from, h, n);
  std::copy_n(from + n, n, state);
}
template <class T>
void read_state(Gru, int64_t n, const float* from, T* h, float* state) {
  cast_row(from, h, n);
  std::copy_n(from, n, state);
}
template <class T>
void write_state(Lstm, int64_t n, const T* h, const float* state, float* to) {
  for (int64_t j = 0; j < n; ++j) to[j] = to_float(h[j]);
  std::copy_n(state, n, to + n);
}
template <class T>
void write_state(Gru, int64_t n, const T*, const float* state, float* to) {
  std::copy_n(state, n, to);
}

// The product of a step, c [rows, n] = a [rows, k] b [k, n], or added to c, in which a block of
// sequences has the rows.
class StepProduct {
 public:
  StepProduct(const EnginePtr& engine, int64_t samples, int64_t n, int64_t k, const Matrix& b,
              bool accumulate)
      : samples_(samples), block_(std::min(samples, rows_of_block(samples))) {
    const auto make = [&](int64_t rows, int64_t blocks) {
      const Matrix a{b.type, k, 1}, c{memory::data_type::f32, n, 1};
      return PackedProduct(engine, rows, n, k, a, b, c, accumulate, blocks);
    };
    full_.emplace(make(block_, samples / block_));
    if (samples % block_ > 0) last_.emplace(make(samples % block_, 1));
  }

  int64_t blocks() const { return (samples_ + block_ - 1) / block_; }
  int64_t block() const { return block_; }  // sequences of all blocks but the last
  int64_t first(int64_t block) const { return block * block_; }
  int64_t count(int64_t block) const { return std::min(block_, samples_ - first(block)); }

  size_t packed_bytes() const {
    return device_aligned(full_->packed_bytes()) + (last_ ? last_->packed_bytes() : 0);
  }
  size_t scratch_bytes() const {
    return std::max(full_->scratch_bytes(), last_ ? last_->scratch_bytes() : 0);
  }
  void pack(const void* b, std::byte* packed) const {
    full_->pack(b, packed);
    if (last_) last_->pack(b, packed + device_aligned(full_->packed_bytes()));
  }
  void run(int64_t block, const void* a, const std::byte* packed, void* c, void* scratch) const {
    if (count(block) == block_) return full_->run(a, packed, c, scratch, block);
    last_->run(a, packed + device_aligned(full_->packed_bytes()), c, scratch, 0);
  }

 private:
  using memory = dnnl::memory;
  // Results do not depend on the size of blocks, which gives every thread one if there are enough
  // sequences, and more if its values would not stay in the cache.
  static int64_t rows_of_block(int64_t samples) {
    constexpr int64_t kMultiple = 4, kMax = 64;
    const int64_t threads = omp_get_max_threads();
    return std::min(round_up((samples + threads - 1) / threads, kMultiple), kMax);
  }

  int64_t samples_, block_;
  std::optional<PackedProduct> full_, last_;
};

// The steps of the forward pass. `Op` is RecurrentForward or CachedRecurrent.
template <class Op, class T, class Cell>
class ForwardSteps {
 public:
  ForwardSteps(const EnginePtr& engine, const RecurrentSizes& sizes, int64_t positions)
      : n_(sizes),
        positions_(positions),
        product_(engine, n_.samples, n_.gates, n_.hidden, Matrix{type_of<T>(), 1, n_.hidden},
                 /*accumulate=*/false),
        threads_(threads_for(product_.blocks())),
        own_{block_bytes(n_.gates, sizeof(float)), block_bytes(n_.hidden, sizeof(T)),
             block_bytes(n_.hidden, sizeof(float)), product_.scratch_bytes()},
        shared_{product_.packed_bytes(), own_.total() * static_cast<size_t>(threads_)} {}

  size_t scratch_bytes() const { return shared_.total(); }

  // a [B * T, G * H] may be in the workspace.
  void run(Args args, const float* a, void* scratch) const {
    auto* const packed = shared_.at<std::byte>(scratch, 0, 0);
    product_.pack(args[Op::kWeightHh], packed);
    each_task(product_.blocks(), threads_, [&](int64_t thread, int64_t block) {
      void* const own = shared_.at<void>(scratch, 0, 1);
      run_block(args, a, packed, block,
                {.r = own_.at<float>(own, thread, 0),
                 .h = own_.at<T>(own, thread, 1),
                 .state = own_.at<float>(own, thread, 2),
                 .scratch = own_.at<void>(own, thread, 3)});
    });
  }

 private:
  static constexpr bool kCached = std::is_same_v<Op, CachedRecurrent>;
  // Of the sequences of a block.
  struct Memory {
    float* r;
    T* h;
    float* state;
    void* scratch;
  };

  size_t block_bytes(int64_t width, size_t element) const {
    return static_cast<size_t>(product_.block() * width) * element;
  }

  // Returns the state before the first step of a sequence; null if it is 0.
  const float* initial(Args args, int64_t sample) const {
    if constexpr (kCached) {
      const int64_t start = pointer<const int32_t>(args, Op::kStarts)[sample];
      if (start == 0 || start >= positions_) return nullptr;
      return pointer<const float>(args, Op::kCache) + (sample * positions_ + start - 1) * n_.state;
    } else {
      const auto* states = pointer<const float>(args, Op::kInitial);
      return states ? states + sample * n_.state : nullptr;
    }
  }

  // Returns whether any state is not 0.
  bool begin(Args args, int64_t block, const Memory& m) const {
    bool any = false;
    for (int64_t i = 0; i < product_.count(block); ++i) {
      T* const h = m.h + i * n_.hidden;
      float* const state = m.state + i * n_.hidden;
      if (const float* from = initial(args, product_.first(block) + i)) {
        read_state(Cell(), n_.hidden, from, h, state);
        any = true;
      } else {
        clear(h, state);
      }
    }
    return any;
  }

  void run_block(Args args, const float* a, const std::byte* packed, int64_t block,
                 const Memory& m) const {
    const bool any = begin(args, block, m);
    const int64_t count = product_.count(block);
    for (int64_t step = 0; step < n_.length; ++step) {
      if (step > 0 || any) {
        product_.run(block, m.h, packed, m.r, m.scratch);
      } else {
        std::fill_n(m.r, count * n_.gates, 0.0f);
      }
      for (int64_t i = 0; i < count; ++i) {
        run_row(args, a, product_.first(block) + i, step,
                {m.r + i * n_.gates, m.h + i * n_.hidden, m.state + i * n_.hidden, nullptr});
      }
    }
    if constexpr (!kCached) {
      auto* const finals = pointer<float>(args, Op::kFinal);
      for (int64_t i = 0; finals && i < count; ++i) {
        write_state(Cell(), n_.hidden, m.h + i * n_.hidden, m.state + i * n_.hidden,
                    finals + (product_.first(block) + i) * n_.state);
      }
    }
  }

  void run_row(Args args, const float* a, int64_t sample, int64_t step, const Memory& m) const {
    const int64_t row = n_.row(sample, step);
    const T* const bias = pointer<const T>(args, Op::kBiasHh);
    T* const y = pointer<T>(args, Op::kY) + row * n_.hidden;
    a += row * n_.gates;
    if (auto* const workspace = workspace_of(args)) {
      T* const saved = reinterpret_cast<T*>(workspace) + row * kSavedGates * n_.hidden;
      float* const cell =
          reinterpret_cast<float*>(workspace + cells_offset<T>(n_)) + row * n_.hidden;
      forward_row<true, T>(Cell(), n_.hidden, a, m.r, bias, m.state, m.h, y, saved, cell);
    } else {
      forward_row<false, T>(Cell(), n_.hidden, a, m.r, bias, m.state, m.h, y, nullptr, nullptr);
    }
    if (n_.ends_document<Op>(args, row)) clear(m.h, m.state);
    if constexpr (kCached) {
      const int64_t position = pointer<const int32_t>(args, Op::kStarts)[sample] + step;
      if (position < positions_) {
        write_state(Cell(), n_.hidden, m.h, m.state,
                    pointer<float>(args, Op::kCache) + (sample * positions_ + position) * n_.state);
      } else {
        std::fill_n(y, n_.hidden, from_float<T>(0));
      }
    }
  }

  static std::byte* workspace_of(Args args) {
    if constexpr (requires { Op::kWorkspace; }) return pointer<std::byte>(args, Op::kWorkspace);
    return nullptr;
  }
  void clear(T* h, float* state) const {
    std::fill_n(h, n_.hidden, from_float<T>(0));
    std::fill_n(state, n_.hidden, 0.0f);
  }

  RecurrentSizes n_;
  int64_t positions_;
  StepProduct product_;
  int64_t threads_;
  Parts own_, shared_;
};

template <class Op, class T, class Cell>
Plan plan_forward_steps(const Op& op, const EnginePtr& engine, std::vector<TensorSpec> specs,
                        const RecurrentSizes& n, int64_t positions, bool in_workspace) {
  auto input = plan_input_product(
      op, specs, [&](const auto& part, Specs of_part) { return plan(part, engine, of_part); });
  const size_t a_bytes = static_cast<size_t>(n.rows() * n.gates) * sizeof(float);
  ForwardSteps<Op, T, Cell> steps(engine, n, positions);
  const Parts parts{in_workspace ? 0 : a_bytes,
                    std::max(steps.scratch_bytes(), input->scratch_bytes())};
  auto work = [=, input = std::move(input), steps = std::move(steps)](Stream& stream, Args args,
                                                                      void* scratch) {
    float* a = parts.at<float>(scratch, 0, 0);
    if constexpr (requires { Op::kWorkspace; }) {
      if (in_workspace) a = pointer<float>(args, Op::kWorkspace);
    }
    void* const rest = parts.at<void>(scratch, 0, 1);
    input->encode(
        stream,
        std::array<void*, 5>{args[Op::kX], args[Op::kWeightIh], args[Op::kBiasIh], a, nullptr},
        rest);
    stream.run(Task([&steps, args, a, rest] { steps.run(args, a, rest); }));
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

// The steps of the backward pass, from the last to the first.
template <class T, class Cell>
class BackwardSteps {
 public:
  using Op = RecurrentBackward;
  static constexpr bool kLstm = Cell::kCell == RecurrentCell::kLstm;

  BackwardSteps(const EnginePtr& engine, const RecurrentSizes& sizes)
      : n_(sizes),
        product_(engine, n_.samples, n_.hidden, n_.gates, Matrix{type_of<T>(), n_.hidden, 1},
                 /*accumulate=*/!kLstm),
        threads_(threads_for(product_.blocks())),
        own_{block_bytes(n_.hidden, sizeof(float)), block_bytes(n_.hidden, sizeof(float)),
             block_bytes(n_.gates, sizeof(T)), product_.scratch_bytes()},
        shared_{product_.packed_bytes(), static_cast<size_t>(n_.hidden) * sizeof(float),
                own_.total() * static_cast<size_t>(threads_)} {}

  size_t scratch_bytes() const { return shared_.total(); }

  void run(Args args, const RecurrentGradients::Steps& out, void* scratch) const {
    auto* const packed = shared_.at<std::byte>(scratch, 0, 0);
    auto* const zeros = shared_.at<float>(scratch, 0, 1);
    product_.pack(args[Op::kWeightHh], packed);
    std::fill_n(zeros, n_.hidden, 0.0f);
    each_task(product_.blocks(), threads_, [&](int64_t thread, int64_t block) {
      void* const own = shared_.at<void>(scratch, 0, 2);
      run_block(args, out, packed, zeros, block,
                {.dh = own_.at<float>(own, thread, 0),
                 .dcell = own_.at<float>(own, thread, 1),
                 .next = own_.at<T>(own, thread, 2),
                 .scratch = own_.at<void>(own, thread, 3)});
    });
  }

 private:
  // Of the sequences of a block. `next` is dr of a step, for the product that gives dh before it.
  struct Memory {
    float *dh, *dcell;
    T* next;
    void* scratch;
  };

  size_t block_bytes(int64_t width, size_t element) const {
    return static_cast<size_t>(product_.block() * width) * element;
  }

  void run_block(Args args, const RecurrentGradients::Steps& out, const std::byte* packed,
                 const float* zeros, int64_t block, const Memory& m) const {
    const int64_t count = product_.count(block);
    std::fill_n(m.dh, count * n_.hidden, 0.0f);
    std::fill_n(m.dcell, count * n_.hidden, 0.0f);
    for (int64_t step = n_.length - 1; step >= 0; --step) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t sample = product_.first(block) + i, row = n_.row(sample, step);
        if (n_.ends_document<Op>(args, row)) {
          std::fill_n(m.dh + i * n_.hidden, n_.hidden, 0.0f);
          std::fill_n(m.dcell + i * n_.hidden, n_.hidden, 0.0f);
        }
        const SavedStep<T> saved = saved_step(args, out, zeros, sample, step);
        T* const da = static_cast<T*>(out.da) + row * n_.gates;
        T* const dr = static_cast<T*>(out.dr) + row * n_.gates;
        backward_row(Cell(), n_.hidden, saved, pointer<const T>(args, Op::kDy) + row * n_.hidden,
                     m.dh + i * n_.hidden, m.dcell + i * n_.hidden, da, dr);
        if (!kLstm) std::copy_n(da, 2 * n_.hidden, dr);
        std::copy_n(dr, n_.gates, m.next + i * n_.gates);
      }
      if (step > 0) product_.run(block, m.next, packed, m.dh, m.scratch);
    }
  }

  // Also writes h before the step to `out`.
  SavedStep<T> saved_step(Args args, const RecurrentGradients::Steps& out, const float* zeros,
                          int64_t sample, int64_t step) const {
    const int64_t row = n_.row(sample, step), n = n_.hidden;
    const auto* const workspace = pointer<const std::byte>(args, Op::kWorkspace);
    const auto* const cells = reinterpret_cast<const float*>(workspace + cells_offset<T>(n_));
    const auto* const states = pointer<const float>(args, Op::kInitial);
    const float* const initial = states ? states + sample * n_.state : nullptr;
    T* const before = static_cast<T*>(out.before) + row * n;
    const float* cell_before = zeros;
    const int64_t last = step > 0 ? n_.row(sample, step - 1) : 0;
    if (step > 0 && n_.ends_document<Op>(args, last)) {
      std::fill_n(before, n, from_float<T>(0));
    } else if (step > 0) {
      std::copy_n(pointer<const T>(args, Op::kY) + last * n, n, before);
      if (kLstm) cell_before = cells + last * n;
    } else {
      cast_row(initial ? initial : zeros, before, n);
      if (kLstm && initial) cell_before = initial + n;
    }
    return {.gates = reinterpret_cast<const T*>(workspace) + row * kSavedGates * n,
            .h_before = before,
            .cell = kLstm ? cells + row * n : nullptr,
            .cell_before = cell_before};
  }

  RecurrentSizes n_;
  StepProduct product_;
  int64_t threads_;
  Parts own_, shared_;
};

template <class T, class Cell>
Plan plan_backward_steps(const RecurrentBackward& op, const EnginePtr& engine,
                         std::vector<TensorSpec> specs) {
  using Op = RecurrentBackward;
  const RecurrentSizes n(op, specs[Op::kY].shape);
  RecurrentGradients gradients(
      op, specs, [&](const auto& part, Specs of_part) { return plan(part, engine, of_part); });
  BackwardSteps<T, Cell> steps(engine, n);
  const size_t gate_bytes = static_cast<size_t>(n.rows() * n.gates) * sizeof(T);
  const size_t before_bytes = static_cast<size_t>(n.rows() * n.hidden) * sizeof(T);
  constexpr bool kLstm = Cell::kCell == RecurrentCell::kLstm;
  const Parts parts{gate_bytes, kLstm ? 0 : gate_bytes, before_bytes,
                    std::max(steps.scratch_bytes(), gradients.scratch_bytes())};
  auto work = [=, gradients = std::move(gradients), steps = std::move(steps)](
                  Stream& stream, Args args, void* scratch) {
    void* const da = parts.at<void>(scratch, 0, 0);
    const RecurrentGradients::Steps out{da, kLstm ? da : parts.at<void>(scratch, 0, 1),
                                        parts.at<void>(scratch, 0, 2)};
    void* const rest = parts.at<void>(scratch, 0, 3);
    stream.run(Task([&steps, args, out, rest] { steps.run(args, out, rest); }));
    gradients.encode(stream, args, out, rest);
  };
  return function_op(std::move(specs), std::move(work), parts.total());
}

}  // namespace

Plan plan(const RecurrentForward& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  using Op = RecurrentForward;
  std::vector<TensorSpec> specs = in_row_major(given);
  const RecurrentSizes n(op, specs[Op::kY].shape);
  return with_cell(op.cell, specs[Op::kX].dtype, [&]<class T, class Cell>(T, Cell) -> Plan {
    TensorSpec& workspace = specs[Op::kWorkspace];
    const bool training = !is_absent(given[Op::kWorkspace]);
    if (training) {
      workspace = {
          DType::kU8, {static_cast<int64_t>(workspace_bytes<T, Cell>(n))}, Layout::row_major()};
    }
    // The gates of LSTM overwrite the products.
    const bool in_workspace =
        training && std::is_same_v<T, float> && op.cell == RecurrentCell::kLstm;
    return plan_forward_steps<Op, T, Cell>(op, engine, std::move(specs), n, 0, in_workspace);
  });
}

Plan plan(const RecurrentBackward& op, const EnginePtr& engine, Specs given) {
  if (runs_in_f32(*engine, given)) return plan_in_f32(op, engine, given);
  return with_cell(op.cell, given[RecurrentBackward::kX].dtype, [&]<class T, class Cell>(T, Cell) {
    return plan_backward_steps<T, Cell>(op, engine, in_row_major(given));
  });
}

Plan plan(const CachedRecurrent& op, const EnginePtr& engine, Specs given) {
  using Op = CachedRecurrent;
  const RecurrentSizes n(op, given[Op::kY].shape);
  return with_cell(op.cell, given[Op::kX].dtype, [&]<class T, class Cell>(T, Cell) {
    return plan_forward_steps<Op, T, Cell>(op, engine, in_row_major(given), n,
                                           given[Op::kCache].shape[1], /*in_workspace=*/false);
  });
}

}  // namespace trireme::ops::cpu
