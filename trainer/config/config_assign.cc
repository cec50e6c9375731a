// Implements --set: sets one field of a message by its path.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "core/text.h"
#include "trainer/config/config.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/config_text.h"
#include "trainer/config/deprecated_fields.h"

namespace trireme::train {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

class Assignment {
 public:
  explicit Assignment(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError("--set " + text, "is not of the form field.path=value");
    }
    path_ = text.substr(0, equals);
    value_ = text.substr(equals + 1);
  }

  // Sets the field and returns a warning for each deprecated name.
  std::vector<std::string> apply(Message& root) const {
    const std::string path = current_path(root.GetDescriptor(), path_);
    std::vector<std::string> warnings;
    if (path != path_) {
      warnings.push_back(fmt::format("--set: {} is deprecated; use {}", path_, path));
    }
    const std::vector<std::string> parts = split(path, '.');
    Message* message = &root;
    std::string above;
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto [name, index] = indexed(parts[i]);
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
      if (!field) {
        fail(fmt::format(
            "no field '{}'{}", name,
            suggest_field(root.GetDescriptor(), above, message->GetDescriptor(), name)));
      }
      if (index && !field->is_repeated()) fail(fmt::format("'{}' takes no index", name));
      if (i + 1 == parts.size()) {
        std::ranges::move(set(*message, field, index), std::back_inserter(warnings));
        break;
      }
      message = &enter(*message, field, index);
      above += (i == 0 ? "" : ".") + parts[i];
    }
    return warnings;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw ConfigError("--set: " + path_, message);
  }

  // "layer[2]" -> "layer", 2
  std::pair<std::string, std::optional<int>> indexed(const std::string& part) const {
    const size_t bracket = part.find('[');
    if (bracket == std::string::npos) return {part, std::nullopt};
    int number = -1;
    const char* end = part.data() + part.size();
    const auto result = std::from_chars(part.data() + bracket + 1, end, number);
    if (result.ec != std::errc() || result.ptr + 1 != end || *result.ptr != ']' || number < 0) {
      fail(fmt::format("'{}' is not a field with an index, like layer[2]", part));
    }
    return {part.substr(0, bracket), number};
  }

  Message& element(Message& message, const FieldDescriptor* field, int index) const {
    const Reflection* reflection = message.GetReflection();
    const int size = reflection->FieldSize(message, field);
    if (index > size) fail(fmt::format("'{}' has only {} elements", field->name(), size));
    if (index == size) return *reflection->AddMessage(&message, field);
    return *reflection->MutableRepeatedMessage(&message, field, index);
  }

  Message& enter(Message& message, const FieldDescriptor* field, std::optional<int> index) const {
    if (!field->message_type())
      fail(fmt::format("'{}' is a value and has no fields", field->name()));
    if (!field->is_repeated()) return *message.GetReflection()->MutableMessage(&message, field);
    if (!index)
      fail(fmt::format("'{}' is repeated: use {}[0] and so on", field->name(), field->name()));
    return element(message, field, *index);
  }

  std::vector<std::string> set(Message& message, const FieldDescriptor* field,
                               std::optional<int> index) const {
    if (field->message_type()) {
      if (field->is_repeated() && !index) {
        fail(fmt::format("'{}' is repeated: use {}[0] and so on", field->name(), field->name()));
      }
      return set_message(enter(message, field, index));
    }
    if (index) fail("elements of a list cannot be set; set the complete list: value,value,...");
    const Reflection* reflection = message.GetReflection();
    reflection->ClearField(&message, field);
    if (!field->is_repeated()) {
      set_value(message, field, value_);
    } else if (!value_.empty()) {
      for (const std::string& part : split(value_, ',')) set_value(message, field, part);
    }
    return {};
  }

  std::vector<std::string> set_message(Message& message) const {
    if (value_.starts_with('{') && value_.ends_with('}')) {
      return parse_text(value_.substr(1, value_.size() - 2), "--set " + path_, message);
    }
    const auto is_choice = [](const FieldDescriptor* field) {
      return field->message_type() && field->containing_oneof();
    };
    std::vector<std::string> choices;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message.GetDescriptor()->field(i);
      if (is_choice(field)) choices.push_back(field->name());
    }
    if (choices.empty()) {
      fail(fmt::format("expected {{FIELD: VALUE ...}}, got '{}'; there are the fields {}", value_,
                       fmt::join(field_names(message.GetDescriptor()), ", ")));
    }
    const FieldDescriptor* chosen = message.GetDescriptor()->FindFieldByName(value_);
    if (!chosen || !is_choice(chosen)) {
      fail(fmt::format("'{}' is not one of {}{}", value_, fmt::join(choices, ", "),
                       did_you_mean(value_, choices)));
    }
    message.GetReflection()->MutableMessage(&message, chosen);
    return {};
  }

  template <class T>
  T number(const std::string& text, const char* kind) const {
    T value{};
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(begin, end, value);
    if (result.ec == std::errc::result_out_of_range) fail(fmt::format("{} is out of range", text));
    if (result.ec != std::errc() || result.ptr != end)
      fail(fmt::format("expected {}, got '{}'", kind, text));
    return value;
  }

  const EnumValueDescriptor* enumerator(const FieldDescriptor* field, std::string text) const {
    const auto names = value_names(field->enum_type());
    if (const auto* value = field->enum_type()->FindValueByName(text)) return value;
    text = upper(std::move(text));
    if (const auto* value = field->enum_type()->FindValueByName(text)) return value;
    fail(fmt::format("'{}' is not one of {}{}", text, fmt::join(names, ", "),
                     did_you_mean(text, names)));
  }

  bool boolean(const std::string& text) const {
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    fail(fmt::format("expected true or false, got '{}'", text));
  }

  std::string unquoted(const std::string& text) const {
    const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                        (text.front() == '"' || text.front() == '\'');
    return quoted ? text.substr(1, text.size() - 2) : text;
  }

  void set_value(Message& message, const FieldDescriptor* field, const std::string& text) const {
    const Reflection& reflection = *message.GetReflection();
    const bool add = field->is_repeated();
#define TRIREME_SET(Type, value)                        \
  add ? reflection.Add##Type(&message, field, (value))  \
      : reflection.Set##Type(&message, field, (value)); \
  return
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        TRIREME_SET(Int32, number<int32_t>(text, "an integer"));
      case FieldDescriptor::CPPTYPE_INT64:
        TRIREME_SET(Int64, number<int64_t>(text, "an integer"));
      case FieldDescriptor::CPPTYPE_UINT32:
        TRIREME_SET(UInt32, number<uint32_t>(text, "an integer >= 0"));
      case FieldDescriptor::CPPTYPE_UINT64:
        TRIREME_SET(UInt64, number<uint64_t>(text, "an integer >= 0"));
      case FieldDescriptor::CPPTYPE_FLOAT:
        TRIREME_SET(Float, number<float>(text, "a number"));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        TRIREME_SET(Double, number<double>(text, "a number"));
      case FieldDescriptor::CPPTYPE_BOOL:
        TRIREME_SET(Bool, boolean(text));
      case FieldDescriptor::CPPTYPE_ENUM:
        TRIREME_SET(Enum, enumerator(field, text));
      case FieldDescriptor::CPPTYPE_STRING:
        TRIREME_SET(String, unquoted(text));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        break;  // set_message
    }
#undef TRIREME_SET
  }

  std::string path_;
  std::string value_;
};

}  // namespace

std::vector<std::string> assign(Message& message, const std::string& assignment) {
  return Assignment(assignment).apply(message);
}

}  // namespace trireme::train
