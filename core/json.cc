#include "core/json.h"

#include <string>

namespace trireme {
namespace {

constexpr int kMaxDepth = 100;

// Returns whether brackets outside of strings are nested at most kMaxDepth levels deep. If the text
// is not JSON, this holds up to the place where the parser stops.
bool is_shallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

template <class Json>
Json parse(std::string_view text, bool throws) {
  if (is_shallow(text)) return Json::parse(text, nullptr, throws);
  if (!throws) return Json(Json::value_t::discarded);
  throw Json::parse_error::create(
      101, 0, "nested more than " + std::to_string(kMaxDepth) + " levels deep", nullptr);
}

}  // namespace

nlohmann::json parse_json(std::string_view text, bool throws) {
  return parse<nlohmann::json>(text, throws);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return parse<nlohmann::ordered_json>(text, /*throws=*/true);
}

}  // namespace trireme
