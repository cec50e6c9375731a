#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// Metrics are f32 as in the backends, or f64 for full precision.
struct Metrics {
  void add(Metric which, double value) const {
    if (dtype == DType::kF64) {
      static_cast<double*>(data)[which] += value;
    } else {
      float& sum = static_cast<float*>(data)[which];
      sum = static_cast<float>(double{sum} + value);
    }
  }
  void* data;
  DType dtype;
};

bool is_ignored(const SoftmaxCrossEntropy& op, Args args, int64_t row) {
  const int32_t label = pointer<const int32_t>(args, SoftmaxCrossEntropy::kLabels)[row];
  return label == kIgnoredLabel || label == op.ignore_index;
}

// Values per class of a row.
std::vector<double> of_label(Args args, int64_t row, int64_t classes) {
  const int32_t label = pointer<const int32_t>(args, SoftmaxCrossEntropy::kLabels)[row];
  if (label < 0 || label >= classes) {
    throw Error(
        fmt::format("the label of row {} is {}, but there are {} classes", row, label, classes));
  }
  std::vector<double> wanted(static_cast<size_t>(classes));
  wanted[static_cast<size_t>(label)] = 1;
  return wanted;
}
std::vector<double> probabilities(Args args, int64_t row, int64_t classes) {
  const float* first = pointer<const float>(args, SoftmaxCrossEntropy::kLabels) + row * classes;
  return {first, first + classes};
}

}  // namespace

Plan plan(const SoftmaxCrossEntropy& op, Specs specs) {
  using O = SoftmaxCrossEntropy;
  const int64_t rows = specs[O::kLogits].shape[0], classes = specs[O::kLogits].shape[1];
  const DType metrics_dtype = specs[O::kMetrics].dtype;
  const bool soft = specs[O::kLabels].dtype == DType::kF32;
  std::vector<double> weights(op.class_weights.begin(), op.class_weights.end());
  weights.resize(static_cast<size_t>(classes), 1);  // default weight
  return host_op(std::move(specs), [=](Args args, void*) {
    const StepState& step = state(args, O::kState);
    const Metrics metrics{args[O::kMetrics], metrics_dtype};
    const int64_t valid = step.valid_rows * op.labels_per_sample - op.first_row;
    double loss = 0, plain_loss = 0, weight = 0, top1 = 0, top5 = 0, labels = 0, samples = 0;
    for (int64_t r = 0; r < rows; ++r) {
      samples += r < valid && (op.first_row + r) % op.labels_per_sample == 0;
      const double* logits = in(args, O::kLogits) + r * classes;
      double* dlogits = out(args, O::kDlogits) ? out(args, O::kDlogits) + r * classes : nullptr;
      if (r >= valid || (!soft && is_ignored(op, args, r))) {
        if (dlogits) std::fill_n(dlogits, classes, 0.0);
        continue;
      }
      ++labels;
      const std::vector<double> wanted =
          soft ? probabilities(args, r, classes) : of_label(args, r, classes);
      const int64_t label = std::max_element(wanted.begin(), wanted.end()) - wanted.begin();
      const double largest = *std::max_element(logits, logits + classes);
      double sum = 0;
      int64_t rank = 0;
      for (int64_t c = 0; c < classes; ++c) {
        sum += std::exp(logits[c] - largest);
        rank += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
      }
      const double log_sum = largest + std::log(sum);
      const bool ranks = !std::isnan(log_sum);  // rows with NaN logits count as incorrect
      top1 += ranks && rank < 1;
      top5 += ranks && rank < 5;
      weight += soft ? 1 : weights[static_cast<size_t>(label)];
      std::vector<double> target(static_cast<size_t>(classes));  // times the weight of the class
      double total = 0;
      for (size_t c = 0; c < target.size(); ++c) {
        target[c] = weights[c] * ((1 - double{op.label_smoothing}) * wanted[c] +
                                  double{op.label_smoothing} / static_cast<double>(classes));
        total += target[c];
        loss += target[c] * (log_sum - logits[c]);
        plain_loss += wanted[c] * (log_sum - logits[c]);
      }
      if (op.class_weights.empty()) total = 1;  // probabilities are assumed to sum to 1
      for (size_t c = 0; dlogits && c < target.size(); ++c) {
        dlogits[c] =
            double{step.loss_gradient_scale} * (total * std::exp(logits[c] - log_sum) - target[c]);
      }
    }
    metrics.add(kMetricLoss, loss);
    metrics.add(kMetricTop1, top1);
    metrics.add(kMetricTop5, top5);
    metrics.add(kMetricSamples, samples);
    metrics.add(kMetricWeight, weight);
    metrics.add(kMetricLabels, labels);
    metrics.add(kMetricPlainLoss, plain_loss);
  });
}

Plan plan(const MeanSquaredError&, Specs specs) {
  using O = MeanSquaredError;
  const int64_t rows = specs[O::kPrediction].shape[0], width = specs[O::kPrediction].shape[1];
  const DType target_dtype = specs[O::kTarget].dtype;
  const DType metrics_dtype = specs[O::kMetrics].dtype;
  return host_op(std::move(specs), [=](Args args, void*) {
    const StepState& step = state(args, O::kState);
    double loss = 0;
    for (int64_t i = 0; i < rows * width; ++i) {
      const double target = target_dtype == DType::kF32 ? pointer<const float>(args, O::kTarget)[i]
                                                        : in(args, O::kTarget)[i];
      const bool valid = i / width < step.valid_rows;
      const double error = valid ? in(args, O::kPrediction)[i] - target : 0;
      loss += error * error / static_cast<double>(width);
      if (out(args, O::kDprediction)) {
        out(args, O::kDprediction)[i] =
            double{step.loss_gradient_scale} * 2 * error / static_cast<double>(width);
      }
    }
    const Metrics metrics{args[O::kMetrics], metrics_dtype};
    metrics.add(kMetricLoss, loss);
    metrics.add(kMetricPlainLoss, loss);
    metrics.add(kMetricSamples, step.valid_rows);
    metrics.add(kMetricWeight, step.valid_rows);
    metrics.add(kMetricLabels, step.valid_rows);
  });
}

}  // namespace trireme::ops::reference
