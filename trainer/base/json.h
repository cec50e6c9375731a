// The JSON that runs write and read: metrics.jsonl, summary.json, evaluation.json, what commands
// print with --json.
//
// JSON has numbers for neither NaN nor the infinities. They are the strings "NaN", "Infinity" and
// "-Infinity" here, as in the JSON mapping of Protocol Buffers, so that float() of Python reads
// them. A value that does not exist is null or absent.
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

namespace trireme::train {

// "NaN", "Infinity" or "-Infinity"; empty where the number is finite.
std::string_view non_finite_name(double number);

// The JSON text of a value, with the names above for what is not finite. Bytes that are not UTF-8
// (names of files need not be) become U+FFFD. `indent` as in nlohmann::json::dump: -1 is one line.
std::string json_text(nlohmann::json value, int indent = -1);
std::string json_text(nlohmann::ordered_json value, int indent = -1);

// A number, or one of the names above; nothing where the value is anything else.
std::optional<double> as_number(const nlohmann::json& value);
// The same. Throws Error where the value is anything else.
double to_number(const nlohmann::json& value);

// For fmt: formatted as a double is (`{:.9g}`), but by its name where it is not finite: in quotes
// as JSON has it, or plain.
template <bool kQuoted>
struct NumberText {
  double number;
};
using JsonNumber = NumberText<true>;
using PlainNumber = NumberText<false>;

// nlohmann::json by itself turns fractions into whole numbers and cuts off what does not fit.
// Throws Error unless it is a whole number that a T holds.
template <class T>
T whole_number(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    if (const auto number = value.get<uint64_t>(); std::in_range<T>(number)) {
      return static_cast<T>(number);
    }
  } else if (value.is_number_integer()) {
    if (const auto number = value.get<int64_t>(); std::in_range<T>(number)) {
      return static_cast<T>(number);
    }
  }
  throw Error(json_text(value) + " is not a whole number in its range");
}

// Throws Error unless it is a list of them.
template <class T>
std::vector<T> whole_numbers(const nlohmann::json& list) {
  if (!list.is_array()) throw Error(json_text(list) + " is not a list");
  std::vector<T> numbers;
  for (const nlohmann::json& value : list) numbers.push_back(whole_number<T>(value));
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
