// Parsing of JSON from outside.
#pragma once

#include <exception>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trireme {

// Parses JSON that is nested at most 100 levels deep, since copying and printing a value is
// recursive. For other text throws nlohmann::json::parse_error or, without `throws`, returns a
// discarded value.
nlohmann::json parse_json(std::string_view text, bool throws = true);
// Parses an object, of which only these fields are kept, and of arrays and objects in them only the
// type, so that the memory does not depend on the rest. An array is returned without its elements.
// For other text returns a discarded value.
nlohmann::json parse_json_fields(std::string_view text,
                                 std::initializer_list<std::string_view> names);
// The same as parse_json(), with the fields of objects in the order of the text. Throws.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

// Returns what an exception of the library says, without the library's name for it and without the
// text that was read. Returns what other exceptions say as it is.
std::string json_problem(const std::exception& error);

}  // namespace trireme
