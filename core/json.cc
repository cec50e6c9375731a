#include "core/json.h"

#include <algorithm>
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

nlohmann::json parse_json_fields(std::string_view text,
                                 std::initializer_list<std::string_view> names) {
  using nlohmann::json;
  if (!is_shallow(text)) return json(json::value_t::discarded);
  bool in_object = false;
  const auto keep = [&](int depth, json::parse_event_t event, const json& value) {
    if (depth == 0) {
      in_object = in_object || event == json::parse_event_t::object_start;
      return true;
    }
    if (depth > 1 || !in_object) return false;
    return event != json::parse_event_t::key ||
           std::ranges::find(names, value.get_ref<const std::string&>()) != names.end();
  };
  return json::parse(text, keep, /*allow_exceptions=*/false);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text) {
  return parse<nlohmann::ordered_json>(text, /*throws=*/true);
}

std::string json_problem(const std::exception& error) {
  std::string_view problem = error.what();
  if (problem.starts_with("[json.exception.")) problem.remove_prefix(problem.find("] ") + 2);
  return std::string(problem.substr(0, problem.find("; last read: ")));
}

}  // namespace trireme
