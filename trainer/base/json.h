// Conversion of numbers for the JSON that runs and commands write: metrics.jsonl, summary.json,
// evaluation.json, the output of --json.
//
// JSON has no numbers for NaN and infinity. They are written as the strings "NaN", "Infinity" and
// "-Infinity", as in the JSON mapping of Protocol Buffers; Python's float() accepts them. A missing
// value is null or absent.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace trireme::train {

// Returns "NaN", "Infinity" or "-Infinity"; empty if the number is finite.
std::string_view non_finite_name(double number);

// Returns a value as JSON text, with the names above for numbers that are not finite. Bytes that
// are not UTF-8, as file names may have, become U+FFFD. `indent` is that of nlohmann::json::dump:
// -1 is a single line.
std::string json_text(nlohmann::json value, int indent = -1);
std::string json_text(nlohmann::ordered_json value, int indent = -1);

// Returns the number, which may be given as one of the names above, or nullopt for any other value.
std::optional<double> as_number(const nlohmann::json& value);
// Like as_number, but throws Error for any other value.
double to_number(const nlohmann::json& value);

// A number to be formatted by fmt. It takes the options of a double ({:.9g}); a number that is not
// finite is formatted as its name, with or without quotes.
template <bool kQuoted>
struct NumberText {
  double number;
};
using JsonNumber = NumberText<true>;
using PlainNumber = NumberText<false>;

// Returns an integer. Throws Error if the value is not an integer in the range of T; get<T>() of
// nlohmann::json would truncate fractions and large numbers.
template <class T>
T integer_from(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    if (const auto number = value.get<uint64_t>(); std::in_range<T>(number)) {
      return static_cast<T>(number);
    }
  } else if (value.is_number_integer()) {
    if (const auto number = value.get<int64_t>(); std::in_range<T>(number)) {
      return static_cast<T>(number);
    }
  }
  throw Error(json_text(value) + " is not an integer in its range");
}

// Returns a list of integers. Throws Error if the value is not such a list.
template <class T>
std::vector<T> integers_from(const nlohmann::json& list) {
  if (!list.is_array()) throw Error(json_text(list) + " is not a list");
  std::vector<T> numbers;
  for (const nlohmann::json& value : list) numbers.push_back(integer_from<T>(value));
  return numbers;
}

}  // namespace trireme::train

template <bool kQuoted>
struct fmt::formatter<trireme::train::NumberText<kQuoted>> : fmt::formatter<double> {
  template <class Context>
  auto format(const trireme::train::NumberText<kQuoted>& value, Context& context) const {
    const std::string_view name = trireme::train::non_finite_name(value.number);
    if (name.empty()) return fmt::formatter<double>::format(value.number, context);
    return fmt::format_to(context.out(), kQuoted ? "\"{}\"" : "{}", name);
  }
};
