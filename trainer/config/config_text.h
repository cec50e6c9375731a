// Parses protobuf text format with errors that name the line and the path of a field.
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
  // The message that the field is in; null if unknown.
  const google::protobuf::Descriptor* message = nullptr;
};

// Returns the location of every field of the text, in order, up to a line and column, both from 1,
// if `last_line` is positive. The text may be invalid.
std::vector<FieldPlace> field_places(const std::string& text,
                                     const google::protobuf::Descriptor* root, int last_line = 0,
                                     int last_column = 0);

// Returns the values of a repeated field as text: "1, 2, 3".
std::string values_text(const google::protobuf::Message& message,
                        const google::protobuf::FieldDescriptor* field);

// Returns the names of all fields that are not deprecated.
std::vector<std::string> field_names(const google::protobuf::Descriptor* message);
std::vector<std::string> value_names(const google::protobuf::EnumDescriptor* type);

// Parses text format and merges it into the message. Values of deprecated fields are moved to the
// fields that replace them. Returns a warning for each deprecated field. Throws ConfigError
// "FILE:LINE: field.path: message".
std::vector<std::string> parse_text(const std::string& text, const std::string& file,
                                    google::protobuf::Message& message);

}  // namespace trireme::train
