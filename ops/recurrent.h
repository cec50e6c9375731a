// Recurrent layers: LSTM (Hochreiter and Schmidhuber, Neural Computation 9(8), 1997, with the
// forget gate of Gers et al., 2000) and GRU (Cho et al., arXiv:1406.1078, with the reset gate after
// the product, as in PyTorch and cuDNN). Formulas and order of the gates are those of PyTorch.
//
// x [B, T, C] has B sequences, and so has y [B, T, H]. The weights weight_ih [G * H, C] and
// weight_hh [G * H, H] and the biases [G * H] hold G gates, one after the other. For each gate,
// with the state h before the step,
//   a = weight_ih x + bias_ih,  r = weight_hh h + bias_hh
// LSTM, with the gates i, f, g, o and the cell c before the step:
//   i = sigmoid(a_i + r_i),  f = sigmoid(a_f + r_f),  g = tanh(a_g + r_g),  o = sigmoid(a_o + r_o)
//   c' = f * c + i * g,  h' = o * tanh(c')
// GRU, with the gates r, z, n:
//   r = sigmoid(a_r + r_r),  z = sigmoid(a_z + r_z),  n = tanh(a_n + r * r_n)
//   h' = (1 - z) * n + z * h
// y has h' of every step. A state [S, H] is h, followed by c for LSTM; S = 2 or 1.
#pragma once

#include <cstdint>

#include "ops/op_info.h"

namespace trireme::ops {

enum class RecurrentCell : uint8_t { kLstm, kGru };

constexpr int64_t gates_of(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }
constexpr int64_t states_of(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 2 : 1; }

// kInitial [B, S, H], the state before the first step, is 0 if absent. kFinal [B, S, H], that after
// the last step, is optional. Both are f32, whatever the compute dtype. If kTokens, i32 [B, T], is
// present, the state after a row whose token is `document_end` is 0 for the rows that follow, and
// in kFinal; y has h' of that row. It cannot be combined with `reverse`. kWorkspace has what the
// backward pass needs, in a size that the plan chooses (request it with `unsized_workspace()`); it
// is absent in inference.
struct RecurrentForward {
  enum Arg {
    kX,
    kWeightIh,
    kWeightHh,
    kBiasIh,
    kBiasHh,
    kInitial,
    kTokens,
    kY,
    kFinal,
    kWorkspace,
    kArgs
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  RecurrentCell cell = RecurrentCell::kLstm;
  bool reverse = false;  // reads each sequence from its last row to its first
  int32_t document_end = 0;
};

// Computes the gradients from dy. No gradient flows into the initial state or from the final one
// (truncated backpropagation through time). kY and kWorkspace are those of the forward pass. The
// gradients of the parameters are either all present or all absent. kDx is optional.
struct RecurrentBackward {
  enum Arg {
    kX,
    kWeightIh,
    kWeightHh,
    kInitial,
    kTokens,
    kY,
    kWorkspace,
    kDy,
    kDx,
    kDweightIh,
    kDweightHh,
    kDbiasIh,
    kDbiasHh,
    kArgs
  };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  RecurrentCell cell = RecurrentCell::kLstm;
  bool reverse = false;
  int32_t document_end = 0;
};

// Reads sequences in parts, for generation: x [B, T, C] has the next T rows of each sequence, at
// positions starts[b], starts[b] + 1, ... of it. The state after each row is written to cache
// [B, positions, S, H], f32, which has those of the rows before; the first row of the part goes on
// from the state of the position before it, or from 0 at position 0. Rows at positions that the
// cache does not have are padding: they are not written, and give 0. kStarts is i32 [B], not
// negative. kTokens and `document_end` are those of RecurrentForward.
struct CachedRecurrent {
  enum Arg { kX, kWeightIh, kWeightHh, kBiasIh, kBiasHh, kStarts, kTokens, kCache, kY, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  RecurrentCell cell = RecurrentCell::kLstm;
  int32_t document_end = 0;
};

}  // namespace trireme::ops
