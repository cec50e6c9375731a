// A configuration for people: with what its fields mean and with those that it leaves out.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "trainer/config/config.pb.h"

namespace trireme::train {

// Text that load_config reads back to the same configuration: every field with its comment from
// the .proto, those that are unset as comments with their default or, where there is none, what
// they take. What can be in a message that is unset is told once.
std::string to_annotated_text(const RunConfig& config);

// The comment of a field in its .proto, else of its message; lines without "//". Empty: none.
std::string comment_of(const google::protobuf::FieldDescriptor* field);

}  // namespace trireme::train
