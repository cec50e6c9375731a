// Deprecated names of configuration fields: the option (renamed_to) of core/field_options.proto.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace trireme::train {

// Returns true if the field is only accepted for compatibility. Such a field is never shown,
// suggested or completed, and has no value once a configuration has been read.
bool is_deprecated(const google::protobuf::FieldDescriptor* field);

// Returns the path of a field of `root` ("checks.loss_spike_deviations") with a deprecated name
// replaced by the current one ("checks.loss_spike_stds"). A path without one is returned as it is,
// even if `root` has no such field.
std::string current_path(const google::protobuf::Descriptor* root, const std::string& path);

// Moves the value of every deprecated field, in the message or in one nested in it, to the field
// that replaces it. The message was parsed from `text`, in text format; `file` is its name in
// messages. Returns a warning for each: "FILE:LINE: OLD.PATH is deprecated; use NEW.PATH". Throws
// ConfigError if a deprecated field and its replacement are both set.
std::vector<std::string> replace_deprecated_fields(google::protobuf::Message& message,
                                                   const std::string& text,
                                                   const std::string& file);

// Moves values back to the deprecated fields, so that a hash of the message does not change when a
// field is renamed.
void restore_deprecated_fields(google::protobuf::Message& message);

}  // namespace trireme::train
