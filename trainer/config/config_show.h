// Annotates a configuration with comments and unset fields, for `trireme config show --all`.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "trainer/config/config.pb.h"

namespace trireme::train {

// Returns text that load_config reads back to the same configuration. Every field has its comment
// from the .proto file. Unset fields are commented out, with their default or a placeholder. The
// fields of an unset message are shown only where the message type first occurs.
std::string to_annotated_text(const RunConfig& config);

// Returns the comment of a field in its .proto file or, if it has none, of its message type,
// without "//". Returns "" if neither has one.
std::string comment_of(const google::protobuf::FieldDescriptor* field);

}  // namespace trireme::train
