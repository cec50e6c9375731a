// Which of two evaluations is the better one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/evaluation_metrics.h"
#include "trainer/config/config.h"

namespace trireme::train {

// What train.early_stopping.monitor may be: the names of kEvaluationMetrics.
std::vector<std::string> metric_names();

// The metric by which evaluations of a run are compared: train.early_stopping.monitor or, where
// that is unset, the accuracy, in regression the loss.
std::string best_metric(const RunConfig& config, bool classifies);
// Throws ConfigError, placed in the configuration file, where samples of so many classes (0:
// numbers) have no such metric.
void check_best_metric(const Config& config, int64_t classes);

std::optional<double> value_of(const std::string& metric, const EvaluationMetrics& metrics);
// Of a metric's value: the higher, the better.
double signed_score(const std::string& metric, double value);
// Of an evaluation. Nothing, which is below all others, where the metric was not measured or is not
// finite; a loss that is not finite with nothing right has no score either.
std::optional<double> score_of(const std::string& metric, const EvaluationMetrics& metrics);

}  // namespace trireme::train
