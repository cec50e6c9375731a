#include "trainer/config/config_diff.h"

#include <google/protobuf/text_format.h>

#include <algorithm>

#include "trainer/config/config_text.h"

namespace trireme::train {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// Returns the value of a field that is not a message.
std::string value_text(const Message* message, const FieldDescriptor* field) {
  if (!message) return "";
  if (field->is_repeated()) {
    const std::string values = values_text(*message, field);
    return values.empty() ? "" : "[" + values + "]";
  }
  if (!message->GetReflection()->HasField(*message, field) &&
      (field->containing_oneof() || !field->has_default_value())) {
    return "";
  }
  std::string value;
  TextFormat::PrintFieldValueToString(*message, field, -1, &value);
  return value;
}

using Rule = OnResume::Rule;

Rule rule_of(const FieldDescriptor* field, Rule enclosing) {
  const auto& options = field->options();
  return options.HasExtension(on_resume) ? options.GetExtension(on_resume) : enclosing;
}

const FieldDescriptor* chosen_field(const Message* message, const OneofDescriptor* choice) {
  return message ? message->GetReflection()->GetOneofFieldDescriptor(*message, choice) : nullptr;
}

bool has_messages(const OneofDescriptor* choice) {
  for (int i = 0; i < choice->field_count(); ++i) {
    if (choice->field(i)->message_type()) return true;
  }
  return false;
}

// Compares two messages of the same type; either may be null.
class Comparison {
 public:
  std::vector<ConfigDifference> differences;

  // `enclosing` is the rule of the field that contains the messages.
  void compare(const std::string& path, const Message* a, const Message* b, Rule enclosing) {
    const auto* type = (a ? a : b)->GetDescriptor();
    for (int i = 0; i < type->oneof_decl_count(); ++i) {
      const OneofDescriptor* choice = type->oneof_decl(i);
      if (has_messages(choice)) {
        add_choice(path, chosen_field(a, choice), chosen_field(b, choice), enclosing);
      }
    }
    const std::string prefix = path.empty() ? "" : path + ".";
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      const std::string name = prefix + field->name();
      const Rule rule = rule_of(field, enclosing);
      if (!field->message_type()) {
        add(name, value_text(a, field), value_text(b, field), rule);
      } else if (field->is_repeated()) {
        elements(name, a, b, field, rule);
      } else {
        if (field->options().GetExtension(presence_counts)) {
          add(name, presence_text(a, field), presence_text(b, field), rule);
        }
        const Message* in_a = submessage(a, field);
        const Message* in_b = submessage(b, field);
        if (in_a || in_b) compare(name, in_a, in_b, rule);
      }
    }
  }

 private:
  void add(const std::string& path, std::string a, std::string b, Rule rule) {
    if (a != b) differences.push_back({path, std::move(a), std::move(b), rule});
  }

  static std::string presence_text(const Message* message, const FieldDescriptor* field) {
    return message && message->GetReflection()->HasField(*message, field) ? "set" : "";
  }

  // The stricter of the two rules applies.
  void add_choice(const std::string& path, const FieldDescriptor* a, const FieldDescriptor* b,
                  Rule enclosing) {
    const Rule rule = std::min(a ? rule_of(a, enclosing) : OnResume::FREE,
                               b ? rule_of(b, enclosing) : OnResume::FREE);
    add(path, a ? a->name() : "", b ? b->name() : "", rule);
  }

  // An unset message that is not in a oneof is compared as if it had its defaults.
  static const Message* submessage(const Message* message, const FieldDescriptor* field) {
    if (!message) return nullptr;
    const Reflection* reflection = message->GetReflection();
    if (field->containing_oneof() && !reflection->HasField(*message, field)) return nullptr;
    return &reflection->GetMessage(*message, field);
  }

  void elements(const std::string& path, const Message* a, const Message* b,
                const FieldDescriptor* field, Rule rule) {
    const auto size = [&](const Message* message) {
      return message ? message->GetReflection()->FieldSize(*message, field) : 0;
    };
    const auto element = [&](const Message* message, int i) -> const Message* {
      if (i >= size(message)) return nullptr;
      return &message->GetReflection()->GetRepeatedMessage(*message, field, i);
    };
    for (int i = 0; i < std::max(size(a), size(b)); ++i) {
      compare(path + "[" + std::to_string(i) + "]", element(a, i), element(b, i), rule);
    }
  }
};

}  // namespace

std::vector<ConfigDifference> config_differences(const RunConfig& a, const RunConfig& b) {
  Comparison comparison;
  comparison.compare("", &a, &b, OnResume::REFUSED);
  std::erase_if(comparison.differences,
                [](const ConfigDifference& difference) { return difference.path == "run_dir"; });
  return std::move(comparison.differences);
}

}  // namespace trireme::train
