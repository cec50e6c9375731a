// Metrics of an evaluation by name, and which evaluation is the best.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trireme::train {

// By the names below; only those that were measured.
using MetricValues = std::map<std::string, double>;

// What train.early_stopping.monitor may be.
std::vector<std::string> metric_names();

// The metric by which evaluations of a run are compared: train.early_stopping.monitor or, where
// that is unset, the accuracy, in regression the loss.
std::string best_metric(const RunConfig& config, bool classifies);
// Throws ConfigError, placed in the configuration file, where that metric is not measured.
void check_best_metric(const Config& config, bool classifies);

// Of a metric's value: the higher, the better.
double signed_score(const std::string& metric, double value);
// Of an evaluation. Nothing, which is below all others, where the metric was not measured or is not
// finite; a loss that is not finite with nothing right has no score either.
std::optional<double> score_of(const std::string& metric, const MetricValues& values);

}  // namespace trireme::train
