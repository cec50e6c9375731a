// Softmax cross-entropy of a dense layer with many outputs, such as the vocabulary of a language
// model. Logits and their gradients exist for some rows at a time only (as in Liger Kernel, Hsu et
// al., arXiv:2410.10989).
#pragma once

#include "ops/loss.h"

namespace trireme::ops {

// DenseForward of x [rows, F] with weight [classes, F] and bias [classes], `loss` of these logits
// with labels, i32 [rows], and the gradients by DenseBackwardWeights and DenseBackwardData: dx,
// dweight and dbias. The bias and the gradients are optional; dbias requires dweight. kDx may be x.
struct LinearCrossEntropy {
  enum Arg { kX, kWeight, kBias, kLabels, kState, kDx, kDweight, kDbias, kMetrics, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  double flops(Specs specs) const;

  // Chunks begin at multiples of this number of rows, which are aligned as libraries require.
  static constexpr int64_t kRowMultiple = 16;
  // The most bytes of logits that exist at a time, unless the logits of kRowMultiple rows, or of
  // chunk_rows if that is set, take more.
  static constexpr int64_t kChunkBytes = int64_t{64} << 20;

  SoftmaxCrossEntropy loss = {};
  // Rows whose logits exist at a time, a multiple of kRowMultiple; 0: the backend chooses.
  int64_t chunk_rows = 0;
};

}  // namespace trireme::ops
