// Compares evaluations by the metric that selects the best checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "trainer/base/evaluation_metrics.h"
#include "trainer/config/config.h"

namespace trireme::train {

// Returns the values that train.early_stopping.monitor may have: the names of kEvaluationMetrics.
std::vector<std::string> metric_names();

// Returns the metric that compares evaluations of a run: train.early_stopping.monitor or, if that
// is unset, "accuracy" for classification and "loss" for regression and language models.
std::string best_metric(const RunConfig& config, const Predictions& predictions);
// Returns what the network predicts for these evaluation samples.
Predictions predictions_of(const RunConfig& config, const data::Dataset& evaluation);
// Throws ConfigError, with the location in the configuration file, if this metric is not measured
// for such predictions.
void check_best_metric(const Config& config, const Predictions& predictions);
// As above, for the predictions of these samples. If the metric is r2, reads samples until the
// targets of each output have two values. Throws ConfigError if they never do, and DataError if a
// sample cannot be read and bad records are not skipped.
void check_best_metric(const Config& config, const data::Dataset& evaluation);

std::optional<double> value_of(const std::string& metric, const EvaluationMetrics& metrics);
// Returns the value or its negative, so that higher is better.
double signed_score(const std::string& metric, double value);
// Returns the score of an evaluation, higher is better. Returns nullopt, which compares below every
// score, if the metric was not measured or is not finite, or if it is 0 and the loss is not finite.
std::optional<double> score_of(const std::string& metric, const EvaluationMetrics& metrics);

}  // namespace trireme::train
