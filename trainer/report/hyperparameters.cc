#include "trainer/report/hyperparameters.h"

#include <google/protobuf/text_format.h>

#include <cstdlib>
#include <vector>

#include "trainer/config/config_text.h"

namespace trireme::train {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

Hyperparameter value_of(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return std::string(reflection.GetEnum(message, field)->name());
    default: {
      // Converted through text, so that the float 0.1f becomes 0.1.
      std::string text;
      google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &text);
      return std::strtod(text.c_str(), nullptr);  // unlike std::stod, accepts denormals
    }
  }
}

void collect(const Message& message, const std::string& prefix,
             std::map<std::string, Hyperparameter>& to) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = prefix + field->name();
    if (field->message_type() && field->is_repeated()) continue;
    if (field->is_repeated()) {
      to[path] = values_text(message, field);
    } else if (!field->message_type()) {
      to[path] = value_of(message, field);
    } else {
      const Message& inner = message.GetReflection()->GetMessage(message, field);
      const size_t before = to.size();
      collect(inner, path + ".", to);
      if (to.size() == before) to[path] = true;
    }
  }
}

}  // namespace

std::map<std::string, Hyperparameter> hyperparameters(const RunConfig& config) {
  RunConfig relevant = config;
  relevant.clear_run_dir();
  relevant.clear_metrics();
  std::map<std::string, Hyperparameter> all;
  collect(relevant, "", all);
  return all;
}

}  // namespace trireme::train
