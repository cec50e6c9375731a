// The kernels of the steps of recurrent layers, in which a thread has an element of the state of a
// sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/alignment.h"
#include "core/device.h"
#include "core/dtype.h"

namespace trireme::ops::cuda {

// RecurrentForward::kWorkspace: for each row the values of LSTM's gates, or of GRU's gates and
// r_n, [4 * H]; then, for LSTM, the cell after the step, f32 [H].
inline constexpr int kSavedGates = 4;

struct StepSizes {
  int64_t samples, length, hidden;
  bool lstm, reverse;
  DType dtype;  // of x, h, y and their gradients
  int32_t document_end;

  constexpr int64_t gates() const { return (lstm ? 4 : 3) * hidden; }
  constexpr int64_t states() const { return (lstm ? 2 : 1) * hidden; }
  constexpr int64_t rows() const { return samples * length; }
  // Returns the row that a step of a sequence reads and writes.
  constexpr int64_t row(int64_t sample, int64_t step) const {
    return sample * length + (reverse ? length - 1 - step : step);
  }
  size_t cells_offset() const {
    return device_aligned(static_cast<size_t>(rows() * kSavedGates * hidden) * size_of(dtype));
  }
  size_t workspace_bytes() const {
    return cells_offset() + (lstm ? static_cast<size_t>(rows() * hidden) * sizeof(float) : 0);
  }
};

// Where documents end: kTokens of the ops.
struct DocumentEnds {
  const int32_t* tokens;  // null: nowhere

  // Returns whether the state after this row is 0.
  constexpr bool at(const StepSizes& n, int64_t row) const {
    return tokens && tokens[row] == n.document_end;
  }
};

// The states of CachedRecurrent.
struct CachedStates {
  const int32_t* starts;
  float* cache;  // null: there is none
  int64_t positions;

  // Returns the state before the first step of a sequence; null if it is 0.
  constexpr const float* before(const StepSizes& n, int64_t sample) const {
    const int64_t start = starts[sample];
    if (start == 0 || start >= positions) return nullptr;
    return cache + (sample * positions + start - 1) * n.states();
  }
};

// The states of all sequences: h, and the cell c of LSTM or h of GRU in full precision, [B, H].
struct StepStates {
  void* h;
  float* state;
};

// Queue the kernel that sets the states before the first step, from `initial` [B, S, H], which may
// be null, or from the cache; and the one that writes those after the last step.
void begin_steps(Stream& stream, const StepSizes& n, const float* initial,
                 const CachedStates& cached, const StepStates& states);
void write_final_states(Stream& stream, const StepSizes& n, const StepStates& states, float* to);

// a [B * T, G * H]; r [B, G * H] without its bias. `workspace` is null in inference.
struct ForwardStep {
  DocumentEnds ends;
  const float *a, *r;
  const void* bias;
  void *y, *workspace;
};
void forward_step(Stream& stream, const StepSizes& n, int64_t step, const ForwardStep& args,
                  const CachedStates& cached, const StepStates& states);

// Writes da, dr and h before the step to the rows of RecurrentGradients::Steps. `next` [B, G * H]
// is dr again, for the product that gives dh before the step. dh and dcell [B, H] come from the
// step after; they are not read in the last step of a document. For GRU, dh becomes what does not
// flow through the product.
struct BackwardStep {
  DocumentEnds ends;
  const float* initial;
  const void *y, *workspace, *dy;
  void *da, *dr, *before, *next;
  float *dh, *dcell;
};
void backward_step(Stream& stream, const StepSizes& n, int64_t step, const BackwardStep& args);

}  // namespace trireme::ops::cuda
