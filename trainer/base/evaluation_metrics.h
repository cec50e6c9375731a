// The metrics of an evaluation. All records, files, charts and commands use the list in this file,
// so a metric that is added here appears in all of them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::train {

// Precision, recall and F1 are computed for at most this many classes. They mean little for the
// 50,000 tokens of a vocabulary.
inline constexpr int64_t kMaxScoredClasses = 10'000;

// What a network predicts for a sample, and what is known about it.
struct Predictions {
  int64_t classes = 0;      // 0 for numbers
  bool tokens = false;      // a class for each position of a sequence, instead of one
  bool text = false;        // all tokens of a text of which the size in bytes is known
  bool reweighted = false;  // training minimizes another loss than EvaluationMetrics::loss
};

// Metrics over all samples of all ranks. A metric has no value if it does not apply to the samples
// or is undefined.
struct EvaluationMetrics {
  // Mean of the plain loss: the negative log likelihood of labels, or the squared error.
  std::optional<double> loss = {};
  // Mean of what training minimizes, if that is another: with label smoothing and class weights.
  std::optional<double> objective = {};
  std::optional<double> accuracy = {};  // fraction of labels that have the largest logit
  std::optional<double> top5 = {};      // fraction of labels that are among the five largest logits
  std::optional<double> perplexity = {};     // e^loss
  std::optional<double> bits_per_byte = {};  // loss in bits / bytes of text per token
  // Unweighted means over the classes that have samples or are predicted; see ClassScores.
  std::optional<double> macro_precision = {};
  std::optional<double> macro_recall = {};
  std::optional<double> macro_f1 = {};
  // Unweighted means over the outputs; see OutputScores.
  std::optional<double> mae = {};
  std::optional<double> rmse = {};
  std::optional<double> r2 = {};

  bool operator==(const EvaluationMetrics&) const = default;
};

// Precision, recall and F1 of one class, as scikit-learn defines them with zero_division=0: a ratio
// with denominator 0 is 0.
struct ClassScores {
  int64_t support = 0;         // samples of the class
  int64_t predicted = 0;       // samples predicted as the class
  int64_t true_positives = 0;  // samples of the class predicted as the class

  double precision() const;  // true positives / predicted
  double recall() const;     // true positives / support
  double f1() const;         // harmonic mean: 2 * true positives / (predicted + support)
};

struct MetricInfo {
  // The name in evaluation.json. Other files prepend "eval_".
  const char* name;
  const char* title;  // human-readable name
  const char* description;
  std::optional<double> EvaluationMetrics::*value;
  bool higher_is_better;
  bool is_ratio;  // in [0, 1], shown as a percentage
  bool is_brief;  // included in short summaries
  // The metric applies to this range of classes; 0 is regression.
  int64_t min_classes;
  int64_t max_classes;
  enum class Only { kAny, kPerSample, kPerToken, kText, kReweighted } only = Only::kAny;

  bool is_for(const Predictions& predictions) const {
    const bool applies = only == Only::kPerSample    ? !predictions.tokens
                         : only == Only::kPerToken   ? predictions.tokens
                         : only == Only::kText       ? predictions.text
                         : only == Only::kReweighted ? predictions.reweighted
                                                     : true;
    return applies && min_classes <= predictions.classes && predictions.classes <= max_classes;
  }
};

inline constexpr int64_t kAnyNumberOfClasses = std::numeric_limits<int64_t>::max();
inline constexpr MetricInfo kEvaluationMetrics[] = {
    {.name = "loss",
     .title = "loss",
     .description = "Mean loss",
     .value = &EvaluationMetrics::loss,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = true,
     .min_classes = 0,
     .max_classes = kAnyNumberOfClasses},
    {.name = "objective",
     .title = "objective",
     .description = "Mean training objective",
     .value = &EvaluationMetrics::objective,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = false,
     .min_classes = 1,
     .max_classes = kAnyNumberOfClasses,
     .only = MetricInfo::Only::kReweighted},
    {.name = "accuracy",
     .title = "accuracy",
     .description = "Accuracy",
     .value = &EvaluationMetrics::accuracy,
     .higher_is_better = true,
     .is_ratio = true,
     .is_brief = true,
     .min_classes = 1,
     .max_classes = kAnyNumberOfClasses},
    {.name = "top5",
     .title = "top-5",
     .description = "Top-5 accuracy",
     .value = &EvaluationMetrics::top5,
     .higher_is_better = true,
     .is_ratio = true,
     .is_brief = false,
     .min_classes = 6,  // with five classes it is always 1
     .max_classes = kAnyNumberOfClasses},
    {.name = "perplexity",
     .title = "perplexity",
     .description = "Perplexity",
     .value = &EvaluationMetrics::perplexity,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = true,
     .min_classes = 1,
     .max_classes = kAnyNumberOfClasses,
     .only = MetricInfo::Only::kPerToken},
    {.name = "bits_per_byte",
     .title = "bits per byte",
     .description = "Bits per byte of text",
     .value = &EvaluationMetrics::bits_per_byte,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = false,
     .min_classes = 1,
     .max_classes = kAnyNumberOfClasses,
     .only = MetricInfo::Only::kText},
    {.name = "macro_precision",
     .title = "macro precision",
     .description = "Mean precision of the classes",
     .value = &EvaluationMetrics::macro_precision,
     .higher_is_better = true,
     .is_ratio = true,
     .is_brief = false,
     .min_classes = 2,
     .max_classes = kMaxScoredClasses,
     .only = MetricInfo::Only::kPerSample},
    {.name = "macro_recall",
     .title = "macro recall",
     .description = "Mean recall of the classes",
     .value = &EvaluationMetrics::macro_recall,
     .higher_is_better = true,
     .is_ratio = true,
     .is_brief = false,
     .min_classes = 2,
     .max_classes = kMaxScoredClasses,
     .only = MetricInfo::Only::kPerSample},
    {.name = "macro_f1",
     .title = "macro F1",
     .description = "Mean F1 of the classes",
     .value = &EvaluationMetrics::macro_f1,
     .higher_is_better = true,
     .is_ratio = true,
     .is_brief = true,
     .min_classes = 2,
     .max_classes = kMaxScoredClasses,
     .only = MetricInfo::Only::kPerSample},
    {.name = "mae",
     .title = "MAE",
     .description = "Mean absolute error",
     .value = &EvaluationMetrics::mae,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = true,
     .min_classes = 0,
     .max_classes = 0},
    {.name = "rmse",
     .title = "RMSE",
     .description = "Root mean squared error",
     .value = &EvaluationMetrics::rmse,
     .higher_is_better = false,
     .is_ratio = false,
     .is_brief = false,
     .min_classes = 0,
     .max_classes = 0},
    {.name = "r2",
     .title = "R2",
     .description = "Coefficient of determination, R2",
     .value = &EvaluationMetrics::r2,
     .higher_is_better = true,
     .is_ratio = false,
     .is_brief = true,
     .min_classes = 0,
     .max_classes = 0},
};

// Returns the metric of this name; null if there is none.
const MetricInfo* find_metric(std::string_view name);
// Returns a loss, or a number of a similar kind, as human-readable text: "0.0134", and with four
// significant digits, "1.234e-06", if its size is below 0.001 or at least 1e7.
std::string loss_text(double value);
// Returns a value as human-readable text: "99.72%", "0.0134".
std::string metric_text(const MetricInfo& metric, double value);
// Returns all metrics that have a value as human-readable text: "loss 0.0134, accuracy 99.72%".
std::string metrics_text(const EvaluationMetrics& metrics);

}  // namespace trireme::train
