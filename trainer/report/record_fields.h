// Fields of a JSON object that somebody else has written: they may be missing, or anything.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

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

}  // namespace trireme::train
