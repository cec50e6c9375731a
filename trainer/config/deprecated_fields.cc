#include "trainer/config/deprecated_fields.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/field_options.pb.h"
#include "trainer/config/config_text.h"

namespace trireme::train {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// Returns the field that replaces a deprecated one; null if the field is not renamed.
const FieldDescriptor* replacement_of(const FieldDescriptor* field) {
  if (!field->options().HasExtension(renamed_to)) return nullptr;
  return field->containing_type()->FindFieldByName(field->options().GetExtension(renamed_to));
}

bool is_set(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  return field->is_repeated() ? reflection.FieldSize(message, field) > 0
                              : reflection.HasField(message, field);
}

// Without a collector the parser logs a warning for every deprecated field.
class IgnoreProblems final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// Moves the value of a field to another one of the same type. Text format is the same for both,
// except for the name.
void move_value(Message& message, const FieldDescriptor* from, const FieldDescriptor* to) {
  const Reflection& reflection = *message.GetReflection();
  const int count = from->is_repeated() ? reflection.FieldSize(message, from) : 1;
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string value;
    TextFormat::PrintFieldValueToString(message, from, from->is_repeated() ? i : -1, &value);
    text += fmt::format("{}: {}\n", to->name(), value);
  }
  reflection.ClearField(&message, from);
  TextFormat::Parser parser;
  IgnoreProblems ignore;
  parser.RecordErrorsTo(&ignore);
  if (!parser.MergeFromString(text, &message)) {
    throw Error(fmt::format("internal error: {} cannot be moved to {}", from->full_name(),
                            to->full_name()));
  }
}

using Visit = std::function<void(Message& message, const std::string& prefix)>;

// Calls `visit` with the message and every one nested in it, and the prefix of the paths of its
// fields: "", "data.normalize.", "model.network.layer[2].".
void for_each_message(Message& message, const std::string& prefix, const Visit& visit) {
  visit(message, prefix);
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (!field->message_type()) continue;
    const std::string path = prefix + field->name();
    if (!field->is_repeated()) {
      for_each_message(*reflection.MutableMessage(&message, field), path + ".", visit);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      for_each_message(*reflection.MutableRepeatedMessage(&message, field, i),
                       fmt::format("{}[{}].", path, i), visit);
    }
  }
}

// Returns "FILE:LINE" of the field's first use in the text, or FILE if it is not found.
std::string place_of(const std::string& path, const std::string& text, const std::string& file,
                     const Descriptor* root) {
  for (const FieldPlace& place : field_places(text, root)) {
    if (place.path == path || place.path == path + "[0]") {
      return fmt::format("{}:{}", file, place.line);
    }
  }
  return file;
}

}  // namespace

bool is_deprecated(const FieldDescriptor* field) { return field->options().deprecated(); }

std::string current_path(const Descriptor* root, const std::string& path) {
  std::string current;
  const Descriptor* message = root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const std::string name = part.substr(0, part.find('['));
    const FieldDescriptor* field = message ? message->FindFieldByName(name) : nullptr;
    const FieldDescriptor* replacement = field ? replacement_of(field) : nullptr;
    if (begin > 0) current += '.';
    current += replacement ? replacement->name() + part.substr(name.size()) : part;
    message = field ? field->message_type() : nullptr;
    begin = end + 1;
  }
  return current;
}

std::vector<std::string> replace_deprecated_fields(Message& message, const std::string& text,
                                                   const std::string& file) {
  std::vector<std::string> warnings;
  const Descriptor* root = message.GetDescriptor();
  for_each_message(message, "", [&](Message& one, const std::string& prefix) {
    std::vector<const FieldDescriptor*> fields;
    one.GetReflection()->ListFields(one, &fields);
    for (const FieldDescriptor* field : fields) {
      const FieldDescriptor* replacement = replacement_of(field);
      if (!replacement) continue;
      const std::string path = prefix + field->name();
      const std::string place = place_of(path, text, file, root);
      if (is_set(one, replacement)) {
        throw ConfigError(fmt::format("{}: {}", place, path),
                          fmt::format("is the deprecated name of {}, which is set too; remove {}",
                                      replacement->name(), field->name()));
      }
      move_value(one, field, replacement);
      warnings.push_back(
          fmt::format("{}: {} is deprecated; use {}{}", place, path, prefix, replacement->name()));
    }
  });
  return warnings;
}

void restore_deprecated_fields(Message& message) {
  for_each_message(message, "", [](Message& one, const std::string&) {
    const Descriptor* type = one.GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* replacement = replacement_of(type->field(i));
      if (replacement && is_set(one, replacement)) move_value(one, replacement, type->field(i));
    }
  });
}

}  // namespace trireme::train
