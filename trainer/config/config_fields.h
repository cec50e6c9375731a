// Finds configuration fields by name, for completion and for suggestions in error messages.
// Deprecated fields are not included.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace trireme::train {

struct FieldPath {
  std::string path;  // "optimizer.sgd.momentum", "model.network.layer[0].dense.units"
  int depth = 0;     // number of names in `path`
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// Returns all fields of the message and of the messages nested in it, depth first. Elements of
// repeated messages have index 0.
std::vector<FieldPath> all_fields(const google::protobuf::Descriptor* message);

// Returns a suggestion for a field `name` that `message`, at `path` of `root`, does not have, such
// as "; did you mean 'momentum'?". If no field of the message has a similar name, suggests the path
// of a field or value elsewhere ("optimizer.sgd.momentum", "train.precision=BF16"), or lists the
// fields if the message has only a few. Returns "" if there is nothing to suggest.
std::string suggest_field(const google::protobuf::Descriptor* root, const std::string& path,
                          const google::protobuf::Descriptor* message, const std::string& name);

// Returns the completions of `typed`, the beginning of FIELD=VALUE of --set: field paths, extended
// by one name, that end in "." if another name must follow and in "=" if a value must; or, after
// "=", the values of an enum or bool field. Indices of repeated messages are returned as typed.
std::vector<std::string> complete_assignment(const google::protobuf::Descriptor* root,
                                             const std::string& typed);

}  // namespace trireme::train
