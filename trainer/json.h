// Numbers out of JSON that comes from outside. nlohmann::json by itself turns fractions into whole
// numbers and cuts off what does not fit.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trireme {

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
  throw Error(value.dump() + " is not a whole number in its range");
}

// Throws Error unless it is a list of them.
template <class T>
std::vector<T> whole_numbers(const nlohmann::json& list) {
  if (!list.is_array()) throw Error(list.dump() + " is not a list");
  std::vector<T> numbers;
  for (const nlohmann::json& value : list) numbers.push_back(whole_number<T>(value));
  return numbers;
}

}  // namespace trireme
