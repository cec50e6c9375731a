#include "ops/loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "ops/choose_layouts.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/function_op.h"
#include "ops/loss_rows.h"
#include "ops/step_state.h"

namespace trireme::ops::cpu {
namespace {

// The contribution of a row to the metrics.
struct RowResult {
  double loss;
  double plain_loss;  // without label smoothing and class weights
  int32_t top1, top5;
  double weight = 1;
  int32_t labels = 1;  // 0 if the label is ignored
};

struct RowStatistics {
  float largest;
  float sum_exp;  // sum of e^(logit - largest)
  int32_t ahead;  // classes ranked before the label
  float zero;     // 0; NaN if a logit is not finite
};

template <class T>
TRIREME_VECTORIZED void inspect_row(const T* logits, int32_t classes, int32_t label,
                                    RowStatistics& out) {
  float largest = to_float(logits[0]);
#pragma omp simd reduction(max : largest)
  for (int32_t i = 1; i < classes; ++i) {
    const float v = to_float(logits[i]);
    largest = v > largest ? v : largest;
  }
  const float own = to_float(logits[label]);
  float sum_exp = 0, zero = 0;
  int32_t ahead = 0;
#pragma omp simd reduction(+ : sum_exp, ahead, zero)
  for (int32_t i = 0; i < classes; ++i) {
    const float v = to_float(logits[i]);
    sum_exp += fast_exp(v - largest);
    ahead += (v > own) | ((v == own) & (i < label));
    zero += v * 0;
  }
  out = {largest, sum_exp, ahead, zero};
}

template <class T>
TRIREME_VECTORIZED double sum_logits(const T* logits, int64_t classes) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < classes; ++i) sum += to_float(logits[i]);
  return sum;
}

template <class T>
TRIREME_VECTORIZED void softmax_gradient(const T* logits, T* dlogits, int64_t classes,
                                         float largest, float factor, float offset) {
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) {
    dlogits[i] = from_float<T>(fast_exp(to_float(logits[i]) - largest) * factor - offset);
  }
}

template <class T>
TRIREME_VECTORIZED void softmax_gradient(const T* logits, const float* probabilities, T* dlogits,
                                         int64_t classes, float largest, float factor, float share,
                                         float offset) {
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) {
    dlogits[i] = from_float<T>(fast_exp(to_float(logits[i]) - largest) * factor -
                               share * probabilities[i] - offset);
  }
}

// Returns the sum of p * logit over the classes.
template <class T>
TRIREME_VECTORIZED double expected_logit(const T* logits, const float* probabilities,
                                         int64_t classes) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < classes; ++i) {
    sum += static_cast<double>(to_float(logits[i])) * static_cast<double>(probabilities[i]);
  }
  return sum;
}

// softmax_gradient with class weights.
template <class T>
TRIREME_VECTORIZED void weighted_gradient(const T* logits, const float* weights, T* dlogits,
                                          int64_t classes, float largest, float factor,
                                          float offset) {
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) {
    dlogits[i] =
        from_float<T>(fast_exp(to_float(logits[i]) - largest) * factor - weights[i] * offset);
  }
}

template <class T>
TRIREME_VECTORIZED void weighted_gradient(const T* logits, const float* weights,
                                          const float* probabilities, T* dlogits, int64_t classes,
                                          float largest, float factor, float share, float offset) {
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) {
    dlogits[i] = from_float<T>(fast_exp(to_float(logits[i]) - largest) * factor -
                               weights[i] * (share * probabilities[i] + offset));
  }
}

struct WeightedSums {
  double weight;  // sum of w * p
  double logit;   // sum of w * p * logit
  double plain;   // sum of p * logit
};

template <class T>
TRIREME_VECTORIZED void weighted_sums(const T* logits, const float* weights,
                                      const float* probabilities, int64_t classes,
                                      WeightedSums& out) {
  double weight = 0, logit = 0, plain = 0;
#pragma omp simd reduction(+ : weight, logit, plain)
  for (int64_t i = 0; i < classes; ++i) {
    const double probability = static_cast<double>(probabilities[i]);
    const double part = static_cast<double>(weights[i]) * probability;
    weight += part;
    logit += part * static_cast<double>(to_float(logits[i]));
    plain += probability * static_cast<double>(to_float(logits[i]));
  }
  out = {weight, logit, plain};
}

struct CrossEntropy {
  LossRows rows;
  int64_t classes;
  int32_t ignore_index;
  float smoothing;
  std::vector<float> weights;  // class weights; empty means 1 for all
  double mean_weight = 1;      // of the classes

  bool weighted() const { return !weights.empty(); }
  bool ignores(int32_t label) const { return label == kIgnoredLabel || label == ignore_index; }
};

// Sums over the classes with the target w * t of a row.
struct RowTarget {
  double sum;
  double expected;  // by w * p
  double mean;      // by w / classes
  double plain;     // by p
};

RowResult row_result(const CrossEntropy& c, const RowStatistics& row, const RowTarget& target,
                     double weight) {
  const double log_sum =
      static_cast<double>(row.largest) + std::log(static_cast<double>(row.sum_exp));
  const double loss = target.sum * log_sum - (1 - c.smoothing) * target.expected -
                      c.smoothing * target.mean + static_cast<double>(row.zero);
  const bool ranks = loss == loss;  // rows with logits that are not finite count as incorrect
  return {.loss = loss,
          .plain_loss = log_sum - target.plain + static_cast<double>(row.zero),
          .top1 = ranks && row.ahead == 0,
          .top5 = ranks && row.ahead < 5,
          .weight = weight};
}

// Returns the sum of w * t over the classes, given the sum of w * p.
double target_sum(const CrossEntropy& c, double weight) {
  return c.weighted() ? (1 - c.smoothing) * weight + c.smoothing * c.mean_weight : 1;
}

// Returns the mean of w * logit, for label smoothing.
template <class T>
double mean_logit(const CrossEntropy& c, const T* logits) {
  if (c.smoothing == 0) return 0;
  const double sum = c.weighted() ? expected_logit(logits, c.weights.data(), c.classes)
                                  : sum_logits(logits, c.classes);
  return sum / static_cast<double>(c.classes);
}

template <class T>
RowResult cross_entropy_row(const CrossEntropy& c, const T* logits, const int32_t* label_of_row,
                            float scale, T* dlogits) {
  const int32_t label = *label_of_row;
  if (c.ignores(label)) {
    if (dlogits)
      std::memset(static_cast<void*>(dlogits), 0, static_cast<size_t>(c.classes) * sizeof(T));
    return {.loss = 0, .plain_loss = 0, .top1 = 0, .top5 = 0, .weight = 0, .labels = 0};
  }
  RowStatistics row;
  inspect_row(logits, static_cast<int32_t>(c.classes), label, row);
  const float own = to_float(logits[label]);
  const float weight = c.weighted() ? c.weights[label] : 1;
  const RowTarget target{target_sum(c, weight), static_cast<double>(weight) * double{own},
                         mean_logit(c, logits), double{own}};
  const RowResult result = row_result(c, row, target, weight);
  if (dlogits) {
    const auto sum = static_cast<float>(target.sum);
    const float factor = scale * sum / row.sum_exp;
    const float offset = scale * c.smoothing / static_cast<float>(c.classes);
    // The target of the label's class.
    const float wanted = weight * (1 - c.smoothing + c.smoothing / static_cast<float>(c.classes));
    if (c.weighted()) {
      weighted_gradient(logits, c.weights.data(), dlogits, c.classes, row.largest, factor, offset);
    } else {
      softmax_gradient(logits, dlogits, c.classes, row.largest, factor, offset);
    }
    const float share = fast_exp(own - row.largest) / row.sum_exp;
    dlogits[label] = from_float<T>(scale * (sum * share - wanted));
  }
  return result;
}

template <class T>
RowResult cross_entropy_row(const CrossEntropy& c, const T* logits, const float* probabilities,
                            float scale, T* dlogits) {
  const int64_t label = std::max_element(probabilities, probabilities + c.classes) - probabilities;
  RowStatistics row;
  inspect_row(logits, static_cast<int32_t>(c.classes), static_cast<int32_t>(label), row);
  WeightedSums sums{1, 0, 0};
  if (c.weighted()) {
    weighted_sums(logits, c.weights.data(), probabilities, c.classes, sums);
  } else {
    sums.logit = sums.plain = expected_logit(logits, probabilities, c.classes);
  }
  const RowTarget target{target_sum(c, sums.weight), sums.logit, mean_logit(c, logits), sums.plain};
  const RowResult result = row_result(c, row, target, 1);
  if (dlogits) {
    const float factor = scale * static_cast<float>(target.sum) / row.sum_exp;
    const float share = scale * (1 - c.smoothing);
    const float offset = scale * c.smoothing / static_cast<float>(c.classes);
    if (c.weighted()) {
      weighted_gradient(logits, c.weights.data(), probabilities, dlogits, c.classes, row.largest,
                        factor, share, offset);
    } else {
      softmax_gradient(logits, probabilities, dlogits, c.classes, row.largest, factor, share,
                       offset);
    }
  }
  return result;
}

void add_metrics(const RowResult* results, int64_t rows, int64_t samples, float* metrics) {
  double loss = 0, plain_loss = 0, weight = 0;
  int64_t top1 = 0, top5 = 0, labels = 0;
  for (int64_t n = 0; n < rows; ++n) {
    loss += results[n].loss;
    plain_loss += results[n].plain_loss;
    weight += results[n].weight;
    top1 += results[n].top1;
    top5 += results[n].top5;
    labels += results[n].labels;
  }
  metrics[kMetricLoss] += static_cast<float>(loss);
  metrics[kMetricTop1] += static_cast<float>(top1);
  metrics[kMetricTop5] += static_cast<float>(top5);
  metrics[kMetricSamples] += static_cast<float>(samples);
  metrics[kMetricWeight] += static_cast<float>(weight);
  metrics[kMetricLabels] += static_cast<float>(labels);
  metrics[kMetricPlainLoss] += static_cast<float>(plain_loss);
}

void check_labels(const CrossEntropy& c, const int32_t* labels, int64_t valid) {
  for (int64_t n = 0; n < valid; ++n) {
    if ((labels[n] < 0 || labels[n] >= c.classes) && !c.ignores(labels[n])) {
      throw Error(fmt::format("the label of row {} is {}, but there are {} classes",
                              c.rows.first + n, labels[n], c.classes));
    }
  }
}
void check_labels(const CrossEntropy&, const float*, int64_t) {}

// `labels`: one label per row, or one probability per class.
template <class T, class Label>
void cross_entropy(const CrossEntropy& c, const T* logits, const Label* labels,
                   const StepState& state, T* dlogits, float* metrics, RowResult* results) {
  constexpr bool kSoft = std::is_same_v<Label, float>;
  const int64_t valid = c.rows.valid(state);
  check_labels(c, labels, valid);
  parallel_for(valid, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      results[n] =
          cross_entropy_row(c, logits + n * c.classes, labels + n * (kSoft ? c.classes : 1),
                            state.loss_gradient_scale, dlogits ? dlogits + n * c.classes : nullptr);
    }
  });
  if (dlogits) {
    std::memset(static_cast<void*>(dlogits + valid * c.classes), 0,
                static_cast<size_t>((c.rows.count - valid) * c.classes) * sizeof(T));
  }
  add_metrics(results, valid, c.rows.valid_samples(state), metrics);
}

template <class T>
TRIREME_VECTORIZED double squared_error_row(const T* prediction, const float* target,
                                            T* dprediction, int64_t features, float factor) {
  double sum = 0;
  for (int64_t i = 0; i < features; ++i) {
    const float error = to_float(prediction[i]) - target[i];
    sum += static_cast<double>(error) * error;
    if (dprediction) dprediction[i] = from_float<T>(factor * error);
  }
  return sum / static_cast<double>(features);
}

template <class T>
void squared_error(int64_t rows, int64_t features, const T* prediction, const float* target,
                   const StepState& state, T* dprediction, float* metrics, RowResult* results) {
  const int64_t valid = std::clamp<int64_t>(state.valid_rows, 0, rows);
  const float factor = 2 * state.loss_gradient_scale / static_cast<float>(features);
  parallel_for(valid, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t at = n * features;
      const double loss = squared_error_row(
          prediction + at, target + at, dprediction ? dprediction + at : nullptr, features, factor);
      results[n] = {.loss = loss, .plain_loss = loss, .top1 = 0, .top5 = 0};
    }
  });
  if (dprediction) {
    std::memset(static_cast<void*>(dprediction + valid * features), 0,
                static_cast<size_t>((rows - valid) * features) * sizeof(T));
  }
  add_metrics(results, valid, valid, metrics);
}

}  // namespace

Plan plan(const SoftmaxCrossEntropy& op, const EnginePtr&, Specs given) {
  using Op = SoftmaxCrossEntropy;
  const TensorSpec& logits = given[Op::kLogits];
  CrossEntropy c{.rows = {logits.shape[0], op.labels_per_sample, op.first_row},
                 .classes = logits.shape[1],
                 .ignore_index = op.ignore_index,
                 .smoothing = op.label_smoothing,
                 .weights = op.class_weights};
  if (c.weighted()) {
    c.mean_weight =
        std::accumulate(c.weights.begin(), c.weights.end(), 0.0) / static_cast<double>(c.classes);
  }
  const auto with_labels = [&]<class T, class Label>(T, Label) -> Plan {
    return host_op(
        in_row_major(given),
        [c](Args args, void* scratch) {
          cross_entropy(c, pointer<const T>(args, Op::kLogits),
                        pointer<const Label>(args, Op::kLabels),
                        *pointer<const StepState>(args, Op::kState), pointer<T>(args, Op::kDlogits),
                        pointer<float>(args, Op::kMetrics), static_cast<RowResult*>(scratch));
        },
        static_cast<size_t>(c.rows.count) * sizeof(RowResult));
  };
  const bool soft = given[Op::kLabels].dtype == DType::kF32;
  return with_element(logits.dtype, [&]<class T>(T element) -> Plan {
    return soft ? with_labels(element, float()) : with_labels(element, int32_t());
  });
}

Plan plan(const MeanSquaredError&, const EnginePtr&, Specs given) {
  using Op = MeanSquaredError;
  const TensorSpec& prediction = given[Op::kPrediction];
  const int64_t rows = prediction.shape[0];
  const int64_t features = prediction.shape.elements() / rows;
  return with_element(prediction.dtype, [&]<class T>(T) -> Plan {
    return host_op(
        in_row_major(given),
        [rows, features](Args args, void* scratch) {
          squared_error(rows, features, pointer<const T>(args, Op::kPrediction),
                        pointer<const float>(args, Op::kTarget),
                        *pointer<const StepState>(args, Op::kState),
                        pointer<T>(args, Op::kDprediction), pointer<float>(args, Op::kMetrics),
                        static_cast<RowResult*>(scratch));
        },
        static_cast<size_t>(rows) * sizeof(RowResult));
  });
}

}  // namespace trireme::ops::cpu
