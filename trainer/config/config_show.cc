#include "trainer/config/config_show.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "trainer/config/config_text.h"
#include "trainer/config/deprecated_fields.h"

namespace trireme::train {

// FileDescriptorSet of config.proto and all that it imports, with comments.
extern const std::string_view kConfigDescriptors;

namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::SourceLocation;
using google::protobuf::TextFormat;

// Returns descriptors with comments, which the compiled-in descriptors do not have.
const DescriptorPool& commented_pool() {
  static const auto pool = [] {
    google::protobuf::FileDescriptorSet files;
    if (!files.ParseFromArray(kConfigDescriptors.data(),
                              static_cast<int>(kConfigDescriptors.size()))) {
      throw Error("internal error: the comments of the configuration cannot be read");
    }
    auto built = std::make_unique<DescriptorPool>();
    for (const auto& file : files.file()) built->BuildFile(file);
    return built;
  }();
  return *pool;
}

template <class D>
std::string own_comment(const D* descriptor) {
  SourceLocation location;
  if (!descriptor || !descriptor->GetSourceLocation(&location)) return "";
  std::string text =
      location.leading_comments.empty() ? location.trailing_comments : location.leading_comments;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Returns the value shown for a field without a default.
std::string placeholder(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "\"...\"";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return field->default_value_enum()->name();
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "(number)";
    default:
      return "(integer)";
  }
}

class Annotator {
 public:
  std::string text;

  // `message` is null inside an unset message.
  void fields(const Descriptor* type, const Message* message, const std::string& indent) {
    shown_.insert(type);
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (is_deprecated(field)) continue;
      if (indent.empty() && !text.empty()) text += "\n";
      comment(field, indent);
      if (field->is_repeated()) {
        list(field, message, indent);
      } else if (message && message->GetReflection()->HasField(*message, field)) {
        set(field, *message, indent);
      } else {
        unset(field, message ? "# " : "", indent);
      }
    }
  }

 private:
  void line(const std::string& indent, const std::string& words) { text += indent + words + "\n"; }

  void comment(const FieldDescriptor* field, const std::string& indent) {
    std::istringstream lines(comment_of(field));
    for (std::string words; std::getline(lines, words);) line(indent, "#" + words);
  }

  void set(const FieldDescriptor* field, const Message& message, const std::string& indent) {
    if (field->message_type()) {
      line(indent, field->name() + " {");
      fields(field->message_type(), &message.GetReflection()->GetMessage(message, field),
             indent + "  ");
      return line(indent, "}");
    }
    std::string value;
    TextFormat::PrintFieldValueToString(message, field, -1, &value);
    line(indent, field->name() + ": " + value + choices(field));
  }

  static std::string choices(const FieldDescriptor* field) {
    if (!field->enum_type()) return "";
    return fmt::format("  # {}", fmt::join(value_names(field->enum_type()), ", "));
  }

  // `mark` is "# ", or empty if the field is already in a comment.
  void unset(const FieldDescriptor* field, const std::string& mark, const std::string& indent) {
    const std::string begin = indent + mark;
    if (field->message_type()) return unset_message(field, begin);
    const std::string value = field->has_default_value() ? default_text(field) : placeholder(field);
    const std::string all = field->is_repeated() ? "[" + value + "]" : value;
    line(begin, field->name() + ": " + all + choices(field));
  }

  void unset_message(const FieldDescriptor* field, const std::string& begin) {
    const Descriptor* type = field->message_type();
    if (type->field_count() == 0) return line(begin, field->name() + " {}");
    if (!shown_.insert(type).second) return line(begin, field->name() + " { ... }");
    line(begin, field->name() + " {");
    fields(type, nullptr, begin + "  ");
    line(begin, "}");
  }

  static std::string default_text(const FieldDescriptor* field) {
    const std::unique_ptr<Message> empty(google::protobuf::MessageFactory::generated_factory()
                                             ->GetPrototype(field->containing_type())
                                             ->New());
    std::string value;
    TextFormat::PrintFieldValueToString(*empty, field, -1, &value);
    return value;
  }

  void list(const FieldDescriptor* field, const Message* message, const std::string& indent) {
    const int size = message ? message->GetReflection()->FieldSize(*message, field) : 0;
    std::string values;
    for (int i = 0; i < size; ++i) {
      if (field->message_type()) {
        element(message->GetReflection()->GetRepeatedMessage(*message, field, i), field, indent);
        continue;
      }
      std::string value;
      TextFormat::PrintFieldValueToString(*message, field, i, &value);
      values += (i == 0 ? "" : ", ") + value;
    }
    if (!values.empty()) return line(indent, field->name() + ": [" + values + "]");
    if (size > 0 && shown_.contains(field->message_type())) return;
    unset(field, message ? "# " : "", indent);
  }

  // Shows only set fields: a network has many layers, and there are many kinds of layers.
  void element(const Message& message, const FieldDescriptor* field, const std::string& indent) {
    TextFormat::Printer printer;
    printer.SetUseShortRepeatedPrimitives(true);
    printer.SetSingleLineMode(true);
    std::string fields;
    printer.PrintToString(message, &fields);
    line(indent, field->name() + " { " + fields + "}");
  }

  std::set<const Descriptor*> shown_;
};

}  // namespace

std::string comment_of(const FieldDescriptor* field) {
  const FieldDescriptor* commented = commented_pool().FindFieldByName(field->full_name());
  const std::string own = own_comment(commented);
  return own.empty() && commented ? own_comment(commented->message_type()) : own;
}

std::string to_annotated_text(const RunConfig& config) {
  Annotator annotator;
  annotator.fields(RunConfig::descriptor(), &config, "");
  return annotator.text;
}

}  // namespace trireme::train
