// Parsing of JSON from outside.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace trireme {

// Parses JSON that is nested at most 100 levels deep, since copying and printing a value is
// recursive. For other text throws nlohmann::json::parse_error or, without `throws`, returns a
// discarded value.
nlohmann::json parse_json(std::string_view text, bool throws = true);
// The same, with the fields of objects in the order of the text. Throws.
nlohmann::ordered_json parse_ordered_json(std::string_view text);

}  // namespace trireme
