#include "trainer/base/json.h"

#include <limits>

namespace trireme::train {
namespace {

constexpr std::string_view kNan = "NaN";
constexpr std::string_view kInfinity = "Infinity";
constexpr std::string_view kMinusInfinity = "-Infinity";

template <class Json>
void name_non_finite(Json& value) {
  if (value.is_number_float()) {
    const std::string_view name = non_finite_name(value.template get<double>());
    if (!name.empty()) value = name;
  } else if (value.is_structured()) {
    for (Json& each : value) name_non_finite(each);
  }
}

template <class Json>
std::string text_of(Json value, int indent) {
  name_non_finite(value);
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string_view non_finite_name(double number) {
  if (std::isnan(number)) return kNan;
  if (std::isinf(number)) return number > 0 ? kInfinity : kMinusInfinity;
  return {};
}

std::string json_text(nlohmann::json value, int indent) {
  return text_of(std::move(value), indent);
}
std::string json_text(nlohmann::ordered_json value, int indent) {
  return text_of(std::move(value), indent);
}

std::optional<double> as_number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& name = value.get_ref<const std::string&>();
  if (name == kNan) return std::numeric_limits<double>::quiet_NaN();
  if (name == kInfinity) return std::numeric_limits<double>::infinity();
  if (name == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

double to_number(const nlohmann::json& value) {
  if (const std::optional<double> number = as_number(value)) return *number;
  throw Error(json_text(value) + " is not a number");
}

}  // namespace trireme::train
