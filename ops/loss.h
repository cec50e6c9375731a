// Losses. Each op adds the metrics of its valid rows to kMetrics ([kMetricCount], see step_state.h;
// f32, in the reference also f64) and, in the same pass, writes the gradient of the scaled loss,
// StepState::loss_gradient_scale * sum over rows. Rows of samples beyond valid_rows contribute
// nothing, and their gradient is zero.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ignored_label.h"
#include "ops/op_info.h"

namespace trireme::ops {

// Softmax cross-entropy of logits [rows, classes]. labels are either class indices, i32 [rows], or
// class probabilities, f32 [rows, classes]. With p the (one-hot) probabilities, w the class weights
// and e the label smoothing (Szegedy et al., arXiv:1512.00567), the target is t = (1 - e) p + e /
// classes, and the loss of a row is -sum over classes of w t log(softmax(logits)). As in PyTorch,
// the mean loss divides by the sum of the labels' weights or, with probabilities, by the number of
// rows; this divisor is added to kMetricWeight. The loss with e = 0 and all w = 1, the negative log
// likelihood, is added to kMetricPlainLoss. Rows whose label is kIgnoredLabel or ignore_index
// contribute nothing, and their gradient is zero. kDlogits is absent in inference and may be the
// logits. A sample has labels_per_sample adjacent rows. The rows may be a part of those of the
// micro-batch, from first_row on; kMetricSamples then counts the samples that begin in it.
//
// For the accuracy metrics, the correct class is the most probable one or, among equally probable
// classes, the one with the lowest index. Classes with equal logits are ranked by index, too.
//
// Any other label that is not a class index throws Error on the CPU. On a GPU, whose kernels cannot
// throw, it makes the loss and the gradient of its row NaN. Probabilities are assumed, but not
// checked, to sum to 1; a non-finite one makes the loss of its row and its own gradient non-finite.
struct SoftmaxCrossEntropy {
  enum Arg { kLogits, kLabels, kState, kDlogits, kMetrics, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
  // Checks the fields for this number of classes.
  void check_fields(const Checker& c, int64_t classes) const;

  float label_smoothing = 0;
  std::vector<float> class_weights = {};  // [classes], finite, not negative; empty means 1 for all
  int64_t labels_per_sample = 1;
  int32_t ignore_index = kIgnoredLabel;
  int64_t first_row = 0;
};

// Mean squared error of prediction and target, both [rows, F]. The loss of a row is the mean over F
// of (prediction - target)^2. kDprediction is absent in inference and may be the prediction.
struct MeanSquaredError {
  enum Arg { kPrediction, kTarget, kState, kDprediction, kMetrics, kArgs };
  static const OpInfo kInfo;
  void check(const Checker& c) const;
};

}  // namespace trireme::ops
