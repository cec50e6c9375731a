#include "trainer/config/monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace trireme::train {
namespace {

struct MonitoredMetric {
  const char* name;
  bool lowest_is_best;
  bool of_classes;
};
constexpr MonitoredMetric kMetrics[] = {
    {"loss", true, false}, {"accuracy", false, true}, {"top5", false, true}};

const MonitoredMetric& metric_of(const std::string& name) {
  const auto* const found = std::ranges::find(kMetrics, name, &MonitoredMetric::name);
  if (found == std::end(kMetrics)) throw Error("no metric is named '" + name + "'");
  return *found;
}

}  // namespace

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MonitoredMetric& metric : kMetrics) names.emplace_back(metric.name);
  return names;
}

std::string best_metric(const RunConfig& config, bool classifies) {
  if (config.train().has_early_stopping()) return config.train().early_stopping().monitor();
  return classifies ? "accuracy" : "loss";
}

void check_best_metric(const Config& config, bool classifies) {
  const std::string name = best_metric(config.run, classifies);
  if (classifies || !metric_of(name).of_classes) return;
  throw ConfigError(config.where("train.early_stopping.monitor"),
                    fmt::format("'{}' is not measured: this run predicts numbers, not classes; "
                                "monitor the loss",
                                name));
}

double signed_score(const std::string& metric, double value) {
  return metric_of(metric).lowest_is_best ? -value : value;
}

std::optional<double> score_of(const std::string& metric, const MetricValues& values) {
  const auto value = values.find(metric);
  if (value == values.end() || !std::isfinite(value->second)) return std::nullopt;
  const auto loss = values.find("loss");
  const bool lost = loss != values.end() && !std::isfinite(loss->second);
  if (lost && value->second == 0) return std::nullopt;
  return signed_score(metric, value->second);
}

}  // namespace trireme::train
