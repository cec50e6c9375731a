// Access to the fields of JSON objects in run folders. The objects may come from other programs or
// versions, so the readers accept missing fields and fields of any type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// Returns the field, or null if there is none.
const nlohmann::json* find_field(const nlohmann::json& object, const char* key);
// Returns the field as a number (see as_number), or nullopt if there is none.
std::optional<double> number_field(const nlohmann::json& object, const char* key);
// Returns the field clamped to 0..2^53, so that sums cannot overflow, or 0 if it is not an integer.
int64_t count_field(const nlohmann::json& object, const char* key);
// Returns the field, or an empty string if it is not a string.
std::string text_field(const nlohmann::json& object, const char* key);

// Reads the metrics of an evaluation from fields named `prefix` + name of the metric.
EvaluationMetrics metric_fields(const nlohmann::json& object, std::string_view prefix);
enum class Missing { kOmit, kNull };
// Writes the metrics to fields of the same names. `missing` chooses whether a metric without a
// value is omitted or written as null.
void put_metrics(nlohmann::ordered_json& object, std::string_view prefix,
                 const EvaluationMetrics& metrics, Missing missing = Missing::kOmit);
// Returns the name of a metric with a prefix: "eval_loss" for "eval_". That of the loss for "best_"
// is "best_eval_loss", since a run has a training loss, too.
std::string metric_field(std::string_view prefix, const MetricInfo& metric);

}  // namespace trireme::train
