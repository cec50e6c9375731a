// Losses. Each adds to kMetrics ([kMetricCount], see step_state.h; f32, in the reference also f64)
// what its valid rows are worth and writes the gradient of the scaled loss,
// StepState::loss_gradient_scale * sum over rows, in one pass. Rows beyond valid_rows count nowhere
// and get a zero gradient.
#pragma once

#include <vector>

#include "ops/op_info.h"

namespace trireme::ops {

// logits [rows, classes]; labels i32 [rows], or their probabilities f32 [rows, classes]: p is 1 for
// the label, or as given. With label smoothing e (Szegedy et al., arXiv:1512.00567) the target is
// t = (1 - e) p + e / classes, the loss of a row -sum over classes of w t log(softmax(logits)),
// where w is the weight of the class. As in PyTorch the mean loss divides by the sum of the labels'
// weights or, of probabilities, by the number of rows: that is what is added to kMetricWeight.
// kDlogits is absent in inference and may be the logits. What counts as right is the most probable
// class, of equal ones the lower; of equal logits, too, the lower class ranks first.
// A label that is no class is an Error on the CPU; on a GPU, whose kernels cannot throw, it makes
// the loss and the gradient of its row NaN. Probabilities are taken to sum to 1, unchecked; one
// that is not finite makes the loss of its row and its own gradient so.
struct SoftmaxCrossEntropy {
  enum Arg { kLogits, kLabels, kState, kDlogits, kMetrics, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;

  float label_smoothing = 0;
  std::vector<float> class_weights = {};  // [classes], finite, from 0; empty: all are 1
};

// prediction, target [rows, F]; the loss of a row is the mean over F of (prediction - target)^2.
// kDprediction is absent in inference and may be the prediction.
struct MeanSquaredError {
  enum Arg { kPrediction, kTarget, kState, kDprediction, kMetrics, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

}  // namespace trireme::ops
