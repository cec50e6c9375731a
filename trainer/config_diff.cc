#include "trainer/config_diff.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

namespace trireme {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

std::string list_text(const Message& message, const FieldDescriptor* field) {
  const int size = message.GetReflection()->FieldSize(message, field);
  std::string text;
  for (int i = 0; i < size; ++i) {
    std::string value;
    TextFormat::PrintFieldValueToString(message, field, i, &value);
    text += (i == 0 ? "" : ", ") + value;
  }
  return text.empty() ? "" : "[" + text + "]";
}

// Of a field that is no message.
std::string value_text(const Message* message, const FieldDescriptor* field) {
  if (!message) return "";
  if (field->is_repeated()) return list_text(*message, field);
  if (!message->GetReflection()->HasField(*message, field) &&
      (field->containing_oneof() || !field->has_default_value())) {
    return "";
  }
  std::string value;
  TextFormat::PrintFieldValueToString(*message, field, -1, &value);
  return value;
}

std::string chosen_name(const Message* message, const OneofDescriptor* choice) {
  const FieldDescriptor* chosen =
      message ? message->GetReflection()->GetOneofFieldDescriptor(*message, choice) : nullptr;
  return chosen ? chosen->name() : "";
}

bool has_messages(const OneofDescriptor* choice) {
  for (int i = 0; i < choice->field_count(); ++i) {
    if (choice->field(i)->message_type()) return true;
  }
  return false;
}

// Two messages of one type, side by side; null where there is none.
class Comparison {
 public:
  std::vector<ConfigDifference> differences;

  void compare(const std::string& path, const Message* a, const Message* b) {
    const auto* type = (a ? a : b)->GetDescriptor();
    for (int i = 0; i < type->oneof_decl_count(); ++i) {
      const OneofDescriptor* choice = type->oneof_decl(i);
      if (has_messages(choice)) add(path, chosen_name(a, choice), chosen_name(b, choice));
    }
    const std::string prefix = path.empty() ? "" : path + ".";
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      const std::string name = prefix + field->name();
      if (!field->message_type()) {
        add(name, value_text(a, field), value_text(b, field));
      } else if (field->is_repeated()) {
        elements(name, a, b, field);
      } else {
        const Message* in_a = submessage(a, field);
        const Message* in_b = submessage(b, field);
        if (in_a || in_b) compare(name, in_a, in_b);
      }
    }
  }

 private:
  void add(const std::string& path, std::string a, std::string b) {
    if (a != b) differences.push_back({path, std::move(a), std::move(b)});
  }

  // What a message in no choice holds when it is left out are its defaults.
  static const Message* submessage(const Message* message, const FieldDescriptor* field) {
    if (!message) return nullptr;
    const Reflection* reflection = message->GetReflection();
    if (field->containing_oneof() && !reflection->HasField(*message, field)) return nullptr;
    return &reflection->GetMessage(*message, field);
  }

  void elements(const std::string& path, const Message* a, const Message* b,
                const FieldDescriptor* field) {
    const auto size = [&](const Message* message) {
      return message ? message->GetReflection()->FieldSize(*message, field) : 0;
    };
    const auto element = [&](const Message* message, int i) -> const Message* {
      if (i >= size(message)) return nullptr;
      return &message->GetReflection()->GetRepeatedMessage(*message, field, i);
    };
    for (int i = 0; i < std::max(size(a), size(b)); ++i) {
      compare(path + "[" + std::to_string(i) + "]", element(a, i), element(b, i));
    }
  }
};

}  // namespace

std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b) {
  Comparison comparison;
  comparison.compare("", &a, &b);
  std::erase_if(comparison.differences,
                [](const ConfigDifference& difference) { return difference.path == "run_dir"; });
  return std::move(comparison.differences);
}

}  // namespace trireme
