// Where each field stands in a text-format file, for messages that point there.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace trireme::train {

struct FieldPlace {
  std::string path;  // "model.network.layer[2].dense.units"
  std::string name;  // "units"
  int line = 0;      // from 1
  const google::protobuf::Descriptor* message =
      nullptr;  // that the field is in; null where unknown
};

// Every field of the text in order, also where the text is wrong; stops after `last_line` when
// positive.
std::vector<FieldPlace> field_places(const std::string& text,
                                     const google::protobuf::Descriptor* root, int last_line = 0);

// The values of a repeated field: "1, 2, 3".
std::string values_text(const google::protobuf::Message& message,
                        const google::protobuf::FieldDescriptor* field);

// Without deprecated fields.
std::vector<std::string> field_names(const google::protobuf::Descriptor* message);
std::vector<std::string> value_names(const google::protobuf::EnumDescriptor* type);

// Parses text format and merges it into the message. Values of deprecated fields end up in the
// fields that replace them. Returns a warning for each deprecated field. Throws ConfigError
// "FILE:LINE: field.path: message".
std::vector<std::string> parse_text(const std::string& text, const std::string& file,
                                    google::protobuf::Message& message);

}  // namespace trireme::train
