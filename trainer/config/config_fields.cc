#include "trainer/config/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "trainer/config/config_text.h"
#include "trainer/config/deprecated_fields.h"

namespace trireme::train {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kFewNames = 8;
constexpr size_t kFewPlaces = 3;

void collect(const Descriptor* message, const std::string& prefix, int depth,
             std::vector<FieldPath>& found) {
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    if (is_deprecated(field)) continue;
    const std::string path = prefix + field->name();
    found.push_back({path, depth, field});
    if (!field->message_type()) continue;
    collect(field->message_type(), path + (field->is_repeated() ? "[0]." : "."), depth + 1, found);
  }
}

// Returns true if the words differ by only a few letters.
bool is_typo(const std::string& typed, const std::string& name) {
  const size_t few = std::max<size_t>(1, typed.size() / 4);
  // The distance is at least the difference of the lengths.
  return typed.size() <= name.size() + few && edit_distance(typed, name) <= few;
}

// Returns a suggestion of the paths with the fewest names.
std::string offer(const std::vector<FieldPath>& places) {
  const auto shallowest = std::ranges::min_element(places, {}, &FieldPath::depth);
  std::vector<std::string> paths;
  for (const FieldPath& place : places) {
    if (place.depth == shallowest->depth && paths.size() < kFewPlaces) paths.push_back(place.path);
  }
  return fmt::format("; did you mean '{}'?", fmt::join(paths, "' or '"));
}

std::string offer_nearest(const std::string& name, const std::vector<FieldPath>& fields) {
  std::vector<FieldPath> places;
  for (const FieldPath& place : fields) {
    if (place.field->name() == name) places.push_back(place);
  }
  if (places.empty()) {
    std::ranges::copy_if(fields, std::back_inserter(places), [&](const FieldPath& place) {
      return is_typo(name, place.field->name());
    });
  }
  return places.empty() ? "" : offer(places);
}

std::string offer_value(const std::string& name, const std::vector<FieldPath>& fields) {
  std::vector<FieldPath> places;
  for (const FieldPath& place : fields) {
    const auto* type = place.field->enum_type();
    const auto* value = type ? type->FindValueByName(upper(name)) : nullptr;
    if (value) places.push_back({place.path + "=" + value->name(), place.depth, place.field});
  }
  return places.empty() ? "" : offer(places);
}

// "layer[2]" -> "layer"
std::string without_index(const std::string& name) { return name.substr(0, name.find('[')); }

// Returns the message at the path, which ends in "." or is empty; null if there is none.
const Descriptor* message_at(const Descriptor* root, const std::string& path) {
  const Descriptor* message = root;
  for (size_t begin = 0; message && begin < path.size();) {
    const size_t end = path.find('.', begin);
    const FieldDescriptor* field =
        message->FindFieldByName(without_index(path.substr(begin, end - begin)));
    message = field ? field->message_type() : nullptr;
    begin = end + 1;
  }
  return message;
}

std::vector<std::string> complete_value(const FieldDescriptor* field) {
  if (field->enum_type()) return value_names(field->enum_type());
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return {"true", "false"};
  return {};
}

std::string ending_of(const FieldDescriptor* field) {
  if (!field->message_type()) return "=";
  return field->is_repeated() ? "[0]." : ".";
}

}  // namespace

std::vector<FieldPath> all_fields(const Descriptor* message) {
  std::vector<FieldPath> found;
  collect(message, "", 1, found);
  return found;
}

std::string suggest_field(const Descriptor* root, const std::string& path,
                          const Descriptor* message, const std::string& name) {
  const std::vector<std::string> here = field_names(message);
  const std::string close = nearest(name, here);
  if (!close.empty() && is_typo(name, close)) return did_you_mean(name, here);

  std::vector<FieldPath> below;
  collect(message, path.empty() ? "" : path + ".", 1, below);
  std::string hint = offer_nearest(name, below);
  const std::vector<FieldPath> everywhere = all_fields(root);
  if (hint.empty()) hint = offer_nearest(name, everywhere);
  if (hint.empty()) hint = offer_value(name, everywhere);
  if (hint.empty()) hint = did_you_mean(name, here);
  if (hint.empty() && here.size() <= kFewNames && !here.empty()) {
    hint = fmt::format("; there are {}", fmt::join(here, ", "));
  }
  return hint;
}

std::vector<std::string> complete_assignment(const Descriptor* root, const std::string& typed) {
  const size_t equals = typed.find('=');
  const std::string path = typed.substr(0, equals);
  const size_t dot = path.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot + 1);
  const std::string last = path.substr(parent.size());
  const Descriptor* message = message_at(root, parent);
  if (!message) return {};

  std::vector<std::string> all;
  if (equals != std::string::npos) {
    const FieldDescriptor* field = message->FindFieldByName(last);
    if (!field || field->is_repeated()) return {};
    for (const std::string& value : complete_value(field)) all.push_back(path + "=" + value);
  } else {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor* field = message->field(i);
      if (!is_deprecated(field)) all.push_back(parent + field->name() + ending_of(field));
    }
  }
  std::erase_if(all, [&](const std::string& one) { return !one.starts_with(typed); });
  return all;
}

}  // namespace trireme::train
