#include "trainer/report/record_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/base/json.h"

namespace trireme::train {

const nlohmann::json* find_field(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::optional<double> number_field(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = find_field(object, key);
  return value ? as_number(*value) : std::nullopt;
}

int64_t count_field(const nlohmann::json& object, const char* key) {
  constexpr int64_t kMax = int64_t{1} << 53;
  const nlohmann::json* value = find_field(object, key);
  if (!value || !value->is_number_integer()) return 0;
  if (value->is_number_unsigned() && !std::in_range<int64_t>(value->get<uint64_t>())) return 0;
  return std::clamp<int64_t>(value->get<int64_t>(), 0, kMax);
}

std::string text_field(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = find_field(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

EvaluationMetrics metric_fields(const nlohmann::json& object, std::string_view prefix) {
  EvaluationMetrics metrics;
  for (const MetricInfo& metric : kEvaluationMetrics) {
    metrics.*metric.value = number_field(object, metric_field(prefix, metric).c_str());
  }
  return metrics;
}

void put_metrics(nlohmann::ordered_json& object, std::string_view prefix,
                 const EvaluationMetrics& metrics, Missing missing) {
  for (const MetricInfo& metric : kEvaluationMetrics) {
    const std::optional<double>& value = metrics.*metric.value;
    const std::string key = metric_field(prefix, metric);
    if (value) {
      object[key] = *value;
    } else if (missing == Missing::kNull) {
      object[key] = nullptr;
    }
  }
}

std::string metric_field(std::string_view prefix, const MetricInfo& metric) {
  const bool is_loss = metric.value == &EvaluationMetrics::loss;
  return fmt::format("{}{}{}", prefix, prefix == "best_" && is_loss ? "eval_" : "", metric.name);
}

}  // namespace trireme::train
