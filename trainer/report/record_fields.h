// Fields of JSON objects. Those read here somebody else has written: they may be missing, or
// anything.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/base/evaluation_metrics.h"

namespace trireme::train {

// Null where there is none.
const nlohmann::json* find_field(const nlohmann::json& object, const char* key);
// As as_number.
std::optional<double> number_field(const nlohmann::json& object, const char* key);
// 0 where it is no whole number that counts something. What is larger than a run can be is cut off,
// so that sums stay in range.
int64_t count_field(const nlohmann::json& object, const char* key);
// Empty where it is no text.
std::string text_field(const nlohmann::json& object, const char* key);

// The metrics of an evaluation, each as `prefix` and its name.
EvaluationMetrics metric_fields(const nlohmann::json& object, std::string_view prefix);
enum class Missing { kLeftOut, kNull };
void put_metrics(nlohmann::ordered_json& object, std::string_view prefix,
                 const EvaluationMetrics& metrics, Missing missing = Missing::kLeftOut);

}  // namespace trireme::train
