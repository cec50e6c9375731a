#include "trainer/config/monitor.h"

#include <fmt/format.h>

#include <cmath>

namespace trireme::train {
namespace {

const MetricInfo& metric_of(const std::string& name) {
  const MetricInfo* const found = find_metric(name);
  if (!found) throw Error("no metric is named '" + name + "'");
  return *found;
}

}  // namespace

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricInfo& metric : kEvaluationMetrics) names.emplace_back(metric.name);
  return names;
}

std::string best_metric(const RunConfig& config, const Predictions& predictions) {
  if (config.train().has_early_stopping()) return config.train().early_stopping().monitor();
  return predictions.classes > 0 && !predictions.tokens ? "accuracy" : "loss";
}

void check_best_metric(const Config& config, const Predictions& predictions) {
  const std::string name = best_metric(config.run, predictions);
  if (metric_of(name).is_for(predictions)) return;
  std::vector<std::string> measured;
  for (const MetricInfo& metric : kEvaluationMetrics) {
    if (metric.is_for(predictions)) measured.emplace_back(metric.name);
  }
  throw ConfigError(
      config.where("train.early_stopping.monitor"),
      fmt::format("'{}' is not measured: this run predicts {}; choose one of {}", name,
                  predictions.tokens        ? "tokens"
                  : predictions.classes > 0 ? fmt::format("{} classes", predictions.classes)
                                            : "numbers, not classes",
                  fmt::join(measured, ", ")));
}

std::optional<double> value_of(const std::string& metric, const EvaluationMetrics& metrics) {
  return metrics.*metric_of(metric).value;
}

double signed_score(const std::string& metric, double value) {
  return metric_of(metric).higher_is_better ? value : -value;
}

std::optional<double> score_of(const std::string& metric, const EvaluationMetrics& metrics) {
  const std::optional<double> value = value_of(metric, metrics);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  const bool lost = metrics.loss && !std::isfinite(*metrics.loss);
  if (lost && *value == 0) return std::nullopt;
  return signed_score(metric, *value);
}

}  // namespace trireme::train
