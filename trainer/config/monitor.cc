#include "trainer/config/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>

#include "trainer/config/class_weights.h"

namespace trireme::train {
namespace {

const MetricInfo& metric_of(const std::string& name) {
  const MetricInfo* const found = find_metric(name);
  if (!found) throw Error("no metric is named '" + name + "'");
  return *found;
}

std::string predictions_text(const Predictions& predictions) {
  if (predictions.classes == 0) return "numbers, not classes";
  if (!predictions.tokens) return fmt::format("{} classes", predictions.classes);
  return predictions.text ? "tokens" : "tokens of which the size as text is not known";
}

// Returns an output whose targets are equal in all samples; nullopt if there is none.
std::optional<size_t> constant_output(const data::Dataset& samples, bool skips_bad_records) {
  const data::SampleSpec& spec = samples.spec();
  std::vector<std::byte> input(spec.input.bytes());
  std::vector<float> first, target(static_cast<size_t>(spec.target.shape.elements()));
  std::vector<bool> varies(target.size());
  for (int64_t i = 0; i < samples.size(); ++i) {
    try {
      samples.read({.index = i}, input.data(), std::as_writable_bytes(std::span(target)).data());
    } catch (const DataError&) {
      if (!skips_bad_records) throw;
      continue;
    }
    if (first.empty()) first = target;
    for (size_t output = 0; output < target.size(); ++output) {
      if (target[output] != first[output]) varies[output] = true;
    }
    if (std::ranges::all_of(varies, std::identity())) return std::nullopt;
  }
  return std::ranges::find(varies, false) - varies.begin();
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

// A token that does not count is missing from the loss, but not from the bytes of the text.
Predictions predictions_of(const RunConfig& config, const data::Dataset& evaluation) {
  const data::SampleSpec& spec = evaluation.spec();
  return {.classes = spec.classes,
          .tokens = spec.has_token_labels(),
          .text = spec.bytes_per_token > 0 && !ignores_class(config, spec.classes),
          .reweighted = reweights_loss(config)};
}

void check_best_metric(const Config& config, const Predictions& predictions) {
  const std::string name = best_metric(config.run, predictions);
  if (metric_of(name).is_for(predictions)) return;
  std::vector<std::string> measured;
  for (const MetricInfo& metric : kEvaluationMetrics) {
    if (metric.is_for(predictions)) measured.emplace_back(metric.name);
  }
  throw ConfigError(config.where("train.early_stopping.monitor"),
                    fmt::format("'{}' is not measured: this run predicts {}; choose one of {}",
                                name, predictions_text(predictions), fmt::join(measured, ", ")));
}

void check_best_metric(const Config& config, const data::Dataset& evaluation) {
  check_best_metric(config, predictions_of(config.run, evaluation));
  if (best_metric(config.run, predictions_of(config.run, evaluation)) != "r2") return;
  const auto output =
      constant_output(evaluation, config.run.data().on_bad_record() == DataConfig::SKIP);
  if (!output) return;
  throw ConfigError(config.where("train.early_stopping.monitor"),
                    fmt::format("'r2' is not measured: all targets of output {} are equal in {}; "
                                "choose one of loss, mae, rmse",
                                *output, evaluation.description()));
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
