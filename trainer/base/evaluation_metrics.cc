#include "trainer/base/evaluation_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "trainer/base/json.h"

namespace trireme::train {
namespace {

double ratio(int64_t part, int64_t total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

}  // namespace

double ClassScores::precision() const { return ratio(true_positives, predicted); }
double ClassScores::recall() const { return ratio(true_positives, support); }
double ClassScores::f1() const { return ratio(2 * true_positives, predicted + support); }

const MetricInfo* find_metric(std::string_view name) {
  const auto found = std::ranges::find(kEvaluationMetrics, name, &MetricInfo::name);
  return found == std::end(kEvaluationMetrics) ? nullptr : &*found;
}

std::string loss_text(double value) {
  const double size = std::abs(value);
  const bool fixed = value == 0 || (size >= 1e-3 && size < 1e7);
  return fixed ? fmt::format("{:.4f}", value) : fmt::format("{:.4g}", PlainNumber{value});
}

std::string metric_text(const MetricInfo& metric, double value) {
  if (metric.is_ratio) return fmt::format("{:.2f}%", 100 * value);
  // Errors have the scale of the targets.
  const bool any_scale =
      metric.value == &EvaluationMetrics::mae || metric.value == &EvaluationMetrics::rmse;
  return any_scale ? fmt::format("{:.4g}", PlainNumber{value}) : loss_text(value);
}

std::string metrics_text(const EvaluationMetrics& metrics) {
  std::string text;
  for (const MetricInfo& metric : kEvaluationMetrics) {
    const std::optional<double>& value = metrics.*metric.value;
    if (!value) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", metric.title, metric_text(metric, *value));
  }
  return text;
}

}  // namespace trireme::train
